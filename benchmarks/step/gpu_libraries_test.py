"""cmake/ebb_gpu_libraries.cmake finds libraries where Python packages put them, and where it is told to look."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CMAKE = "cmake"
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(finds LANGUAGES C)
set(EBB_HAVE_CUDA TRUE)
set(CUDAToolkit_BIN_DIR "/nowhere/bin")
include("{ROOT}/cmake/ebb_gpu_libraries.cmake")
foreach(name CUBLASLT CUDNN NCCL)
  message(STATUS "${{name}}=${{EBB_HAVE_${{name}}}} ${{EBB_${{name}}_LIBRARY}} ${{EBB_${{name}}_INCLUDE_DIR}}")
endforeach()
message(STATUS "CUDNN_FRONTEND=${{EBB_HAVE_CUDNN_FRONTEND}} ${{EBB_CUDNN_FRONTEND_INCLUDE_DIR}}")
"""


def write(*parts, text=""):
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class gpu_libraries(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = self.folder.name
        self.addCleanup(self.folder.cleanup)
        write(self.at, "project", "CMakeLists.txt", text=PROJECT)

    def configure(self, *options):
        return subprocess.run([CMAKE, "-S", os.path.join(self.at, "project"), "-B", os.path.join(self.at, "build"), *options],
                              capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": self.at})

    def package(self, name, library, header):
        write(self.at, "nvidia", name, "lib", library)
        write(self.at, "nvidia", name, "include", header)
        return f"TRUE {self.at}/nvidia/{name}/lib/{library} {self.at}/nvidia/{name}/include"

    def test_in_python_packages(self):
        expected = {"CUBLASLT": self.package("cu13", "libcublasLt.so.13", "cublasLt.h"),
                    "CUDNN": self.package("cudnn", "libcudnn.so.9", "cudnn.h"),
                    "NCCL": self.package("nccl", "libnccl.so.2", "nccl.h")}
        text = self.configure().stdout
        for name, found in expected.items():
            self.assertIn(f"-- {name}={found}\n", text)
        self.assertIn("-- CUDNN_FRONTEND=FALSE", text)

    def test_where_it_is_told_to_look_first(self):
        self.package("nccl", "libnccl.so.2", "nccl.h")
        write(self.at, "mine", "lib", "libnccl.so")
        write(self.at, "mine", "include", "nccl.h")
        text = self.configure(f"-DEBB_GPU_LIBRARY_DIRS={self.at}/mine").stdout
        self.assertIn(f"-- NCCL=TRUE {self.at}/mine/lib/libnccl.so {self.at}/mine/include\n", text)

    def test_cudnn_frontend(self):
        self.package("cudnn", "libcudnn.so.9", "cudnn.h")
        write(self.at, "wheel", "include", "cudnn_frontend.h")
        for folder in ("wheel", "wheel/include"):
            text = self.configure(f"-DEBB_CUDNN_FRONTEND_DIR={self.at}/{folder}", "--fresh").stdout
            self.assertIn(f"-- CUDNN_FRONTEND=TRUE {self.at}/wheel/include\n", text)
        failed = self.configure(f"-DEBB_CUDNN_FRONTEND_DIR={self.at}/project", "--fresh")
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("EBB_CUDNN_FRONTEND_DIR", failed.stderr)


if __name__ == "__main__":
    CMAKE = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
