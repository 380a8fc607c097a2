#include "schedule/record_model.hpp"

namespace ebb {

namespace {

class record_model_builder {
public:
    record_model_builder(const step_record &record, const std::vector<double> &work_ns,
                         const std::vector<double> &collective_ns)
        : record_(record),
          work_ns_(work_ns),
          collective_ns_(collective_ns),
          left_(record.entries().size(), 0),
          claimed_(record.entries().size(), 0) {}

    record_model build() {
        add_tensors();
        for (uint32_t i = 0; i < record_.events().size(); ++i) {
            if (work_ns_[i] > 0) {
                add(step_event_kind::work, k_no_index, work_ns_[i]);
            }
            add_ends(i);
            add_holds(i);
            add_call(i);
        }
        add_ends(k_no_index);
        add_holds(static_cast<uint32_t>(record_.events().size()));
        // What outlives the step is there until its end.
        for (uint32_t t = 0; t < made_.entry_of.size(); ++t) {
            if (left_[made_.entry_of[t]] != 0) {
                add(step_event_kind::release, t);
            }
        }
        return std::move(made_);
    }

private:
    void add_tensors() {
        const std::vector<step_record::entry> &entries = record_.entries();
        made_.tensor_of.assign(entries.size(), k_no_index);
        for (uint32_t i = 0; i < entries.size(); ++i) {
            if (entries[i].parent == k_no_index) {
                made_.tensor_of[i] = static_cast<uint32_t>(made_.entry_of.size());
                made_.entry_of.push_back(i);
                made_.model.tensors.push_back(tensor_of(entries[i]));
            }
            // A view keeps its parent's bytes: both must end before they do.
            ++left_[body_of(i)];
        }
    }

    [[nodiscard]] uint32_t body_of(uint32_t entry) const {
        const uint32_t parent = record_.entries()[entry].parent;
        return parent == k_no_index ? entry : parent;
    }

    [[nodiscard]] step_tensor tensor_of(const step_record::entry &e) const {
        step_tensor t;
        t.size_bytes = e.size_bytes;
        t.micro_batch = e.key.micro_batch;
        t.stage = e.key.stage;
        t.layer = e.layer;
        t.can_keep = e.automatic || e.memory == held_memory::kept;
        t.can_offload = e.automatic || e.memory == held_memory::source;
        t.can_recompute = e.can_recompute && (e.automatic || e.memory == held_memory::nothing);
        if (!t.can_keep && !t.can_offload && !t.can_recompute) {
            t.can_offload = true;  // the staged form's: its bytes are ours
        }
        if (t.can_recompute) {
            add_recompute(e, t);
        }
        return t;
    }

    // Where nobody said what it costs, it is what went by before it was produced.
    void add_recompute(const step_record::entry &e, step_tensor &t) const {
        t.recompute_ns = e.recompute_cost_ns != 0 ? static_cast<double>(e.recompute_cost_ns) : work_ns_[e.produced_at];
        t.can_recompute = t.recompute_ns > 0;
        for (uint32_t k = 0; k < e.input_count; ++k) {
            t.recompute_from.push_back(made_.tensor_of[body_of(record_.inputs(e)[k])]);
        }
    }

    void add(step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        made_.model.events.push_back(e);
    }

    void add_ends(uint32_t before) {
        for (; end_ < record_.ends().size() && record_.ends()[end_].at <= before; ++end_) {
            const traced_end &gone = record_.ends()[end_];
            const uint32_t body = body_of(gone.activation);
            if (!gone.release) {
                if (claimed_[body] != 0) {
                    claimed_[body] = 0;
                    add(step_event_kind::done, made_.tensor_of[body]);
                }
            } else if (left_[body] != 0 && --left_[body] == 0) {
                add(step_event_kind::release, made_.tensor_of[body]);
            }
        }
    }

    // Of the collectives with calls between their begin and their end: the others hold nothing.
    void add_holds(uint32_t before) {
        const std::vector<traced_collective> &all = record_.collectives();
        for (size_t c = 0; c < all.size() && c < collective_ns_.size(); ++c) {
            if (all[c].end_at == before && all[c].begin_at < before) {
                add(step_event_kind::hold_end, k_no_index);
            }
        }
        for (size_t c = 0; c < all.size() && c < collective_ns_.size(); ++c) {
            if (all[c].begin_at == before && all[c].end_at > before && all[c].end_at != k_no_index) {
                add(step_event_kind::hold_begin, k_no_index, collective_ns_[c]);
            }
        }
    }

    void add_call(uint32_t i) {
        const step_record::event &e = record_.events()[i];
        const uint32_t body = body_of(e.entry);
        if (e.use) {
            claimed_[body] = 1;
            add(step_event_kind::use, made_.tensor_of[body]);
        } else if (body == e.entry) {
            add(step_event_kind::produce, made_.tensor_of[body]);
        }
    }

    const step_record &record_;
    const std::vector<double> &work_ns_;
    const std::vector<double> &collective_ns_;
    record_model made_;
    std::vector<uint32_t> left_;  // by body: itself and its views that have not ended
    std::vector<uint8_t> claimed_;
    size_t end_ = 0;
};

}  // namespace

record_model model_of(const step_record &record, const std::vector<double> &work_ns,
                      const std::vector<double> &collective_ns) {
    return record_model_builder(record, work_ns, collective_ns).build();
}

}  // namespace ebb
