"""What the package says of itself, and what it takes for granted of others."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax

import ebb

SOURCES = Path(__file__).parents[3] / "plugins" / "src"

SAME = {  # of xla_ffi_table.hpp: of XLA's header, with fields in their order
    "extension": ("XLA_FFI_Extension_Base", "struct_size type next"),
    "version": ("XLA_FFI_Api_Version", "struct_size extension_start major_version minor_version"),
    "error_create_args": ("XLA_FFI_Error_Create_Args", "struct_size extension_start message errc"),
    "stream_get_args": ("XLA_FFI_Stream_Get_Args", "struct_size extension_start ctx stream"),
    "run_id_get_args": ("XLA_FFI_RunId_Get_Args", "struct_size extension_start ctx run_id"),
    "device_ordinal_get_args": ("XLA_FFI_DeviceOrdinal_Get_Args", "struct_size extension_start ctx device_ordinal"),
    "buffer": ("XLA_FFI_Buffer", "struct_size extension_start dtype data rank dims"),
    "span": ("XLA_FFI_ByteSpan", "ptr len"),
    "buffers": ("XLA_FFI_Args", "struct_size extension_start size types args"),
    "attributes": ("XLA_FFI_Attrs", "struct_size extension_start size types names attrs"),
    "call_frame": ("XLA_FFI_CallFrame", "struct_size extension_start api ctx stage args rets attrs future"),
    "metadata": ("XLA_FFI_Metadata", "struct_size api_version traits state_type_id"),
    "metadata_extension": ("XLA_FFI_Metadata_Extension", "extension_base metadata"),
    "api": ("XLA_FFI_Api", "struct_size extension_start api_version internal_api XLA_FFI_Error_Create - - - "
            "XLA_FFI_Stream_Get - - - - - - - - - - - XLA_FFI_RunId_Get XLA_FFI_DeviceOrdinal_Get"),
}
NUMBERS = {"k_execute": "XLA_FFI_ExecutionStage_EXECUTE", "k_metadata_extension": "XLA_FFI_Extension_Metadata",
           "k_string_attribute": "XLA_FFI_AttrType_STRING", "k_major": "XLA_FFI_API_MAJOR"}
ELEMENTS = {1: "PRED S8 U8 F8E5M2 F8E3M4 F8E4M3 F8E4M3FN F8E4M3B11FNUZ F8E5M2FNUZ F8E4M3FNUZ F8E8M0FNU",
            2: "S16 U16 F16 BF16",
            4: "S32 U32 F32", 8: "S64 U64 F64 C64", 16: "C128", 0: "S4 U4 S2 U2 S1 U1 F4E2M1FN TOKEN INVALID"}


def fields_of(struct: str) -> list[str]:
    """Of a struct of ours, in their order."""
    text = (SOURCES / "xla_ffi_table.hpp").read_text()
    body = text[text.index(f"\nstruct {struct} {{") :]
    body = body[body.index("{") + 1 : body.index("\n};")]
    found = []
    for statement in re.sub(r"//[^\n]*", "", body).split(";"):
        for piece in [statement] if "(*" in statement else statement.split(","):
            name = re.search(r"\(\*(\w+)\)", piece) or re.search(r"(\w+)\s*(?:=.*)?$", piece.strip())
            found += [name.group(1)] if name else []
    return found


def test_the_table_is_that_of_the_header(tmp_path):
    lines = ["#include <cstddef>", '#include "xla/ffi/api/c_api.h"', '#include "xla_ffi_table.hpp"',
             "namespace ours = ebb_jax::xla;",
             "#if XLA_FFI_API_MINOR >= 4\nusing XLA_FFI_Extension_Base = XLA_FFI_InternalExtension;\n#endif"]
    for ours, (theirs, fields) in SAME.items():
        own = fields_of(ours)
        assert len(own) == len(fields.split()), (ours, own)
        for own_field, their_field in zip(own, fields.split()):
            if their_field != "-":
                own_offset, their_offset = f"offsetof(ours::{ours}, {own_field})", f"offsetof({theirs}, {their_field})"
                lines.append(f"static_assert({own_offset} == {their_offset});")
    lines += [f"static_assert(ours::{ours} == {theirs});" for ours, theirs in NUMBERS.items()]
    lines += [f"static_assert(ours::element_bytes(XLA_FFI_DataType_{kind}) == {size});"
              for size, kinds in ELEMENTS.items() for kind in kinds.split()]
    program = tmp_path / "same.cpp"
    program.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", jax.ffi.include_dir(), "-I", str(SOURCES),
                           str(program)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:4000]


def run(program: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"JAX_PLATFORMS": "cpu"})


def test_main_says_what_there_is():
    done = subprocess.run([sys.executable, "-m", "ebb"], capture_output=True, text=True, timeout=60)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.returncode == 0 and lines["jax"].startswith(jax.__version__) and lines["version"] == ebb.version()


def test_it_wants_no_torch():
    done = run("import sys, ebb.jax; assert 'torch' not in sys.modules and 'flax' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_a_jax_that_is_too_old_is_told():
    done = run("import jax; jax.__version__ = '0.7.2'; import ebb.jax")
    assert done.returncode != 0 and "ImportError: ebb.jax needs JAX 0.8 or newer, and this is 0.7.2" in done.stderr
