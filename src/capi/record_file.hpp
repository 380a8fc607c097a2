// EBB_RECORD: the recorded step, as a file.
#pragma once

#include "capi/session.hpp"

namespace ebb::capi {

// Once for each runtime, if it was asked for and there is a record. A file that cannot be written is a line in the log.
void write_record(entry &e, ebb_runtime &r);

}  // namespace ebb::capi
