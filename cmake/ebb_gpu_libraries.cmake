# NVIDIA's libraries beside the toolkit, for programs that compute on a GPU: cuBLASLt, cuDNN and NCCL. Each is looked for
# in EBB_GPU_LIBRARY_DIRS, in the toolkit, and in Python packages (nvidia/*/lib and include), where library names end in
# their version. For each NAME of CUBLASLT, CUDNN, NCCL: EBB_NAME_LIBRARY and EBB_NAME_INCLUDE_DIR, and EBB_HAVE_NAME.
#
# cudnn_frontend, the C++ headers of cuDNN's graph API, are in no toolkit: EBB_CUDNN_FRONTEND_DIR says where they are
# (the folder with cudnn_frontend.h, or one with include/ in it). EBB_HAVE_CUDNN_FRONTEND needs EBB_HAVE_CUDNN, too.
set(EBB_GPU_LIBRARY_DIRS "" CACHE STRING "Folders with lib/ and include/ of cuBLASLt, cuDNN and NCCL, looked at first")
set(EBB_CUDNN_FRONTEND_DIR "" CACHE PATH "The folder of cudnn_frontend.h")

function(ebb_find_gpu_library name header)
  find_path(EBB_${name}_INCLUDE_DIR ${header} HINTS ${ebb_gpu_library_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
  find_library(EBB_${name}_LIBRARY NAMES ${ARGN} HINTS ${ebb_gpu_library_roots} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
  find_path(EBB_${name}_INCLUDE_DIR ${header})
  find_library(EBB_${name}_LIBRARY NAMES ${ARGN})
  mark_as_advanced(EBB_${name}_INCLUDE_DIR EBB_${name}_LIBRARY)
  if(EBB_${name}_INCLUDE_DIR AND EBB_${name}_LIBRARY)
    set(EBB_HAVE_${name} TRUE PARENT_SCOPE)
  else()
    set(EBB_HAVE_${name} FALSE PARENT_SCOPE)
  endif()
endfunction()

foreach(name CUBLASLT CUDNN NCCL CUDNN_FRONTEND)
  set(EBB_HAVE_${name} FALSE)
endforeach()
if(NOT EBB_HAVE_CUDA)
  return()
endif()

set(ebb_gpu_library_roots ${EBB_GPU_LIBRARY_DIRS} "${CUDAToolkit_LIBRARY_ROOT}" "${CUDAToolkit_TARGET_DIR}")
cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH ebb_toolkit_root)
list(APPEND ebb_gpu_library_roots "${ebb_toolkit_root}")
find_program(EBB_GPU_PYTHON python3)
mark_as_advanced(EBB_GPU_PYTHON)
if(EBB_GPU_PYTHON)
  execute_process(
    COMMAND "${EBB_GPU_PYTHON}" -c "import glob, nvidia; print(';'.join(d for p in nvidia.__path__ for d in sorted(glob.glob(p + '/*'))))"
    OUTPUT_VARIABLE ebb_python_folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND ebb_gpu_library_roots ${ebb_python_folders})
endif()

ebb_find_gpu_library(CUBLASLT cublasLt.h cublasLt libcublasLt.so.13)
ebb_find_gpu_library(CUDNN cudnn.h cudnn libcudnn.so.9)
ebb_find_gpu_library(NCCL nccl.h nccl libnccl.so.2)

if(EBB_CUDNN_FRONTEND_DIR)
  find_path(EBB_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
    PATHS "${EBB_CUDNN_FRONTEND_DIR}" "${EBB_CUDNN_FRONTEND_DIR}/include" NO_DEFAULT_PATH)
  mark_as_advanced(EBB_CUDNN_FRONTEND_INCLUDE_DIR)
  if(NOT EBB_CUDNN_FRONTEND_INCLUDE_DIR)
    message(FATAL_ERROR "EBB_CUDNN_FRONTEND_DIR is '${EBB_CUDNN_FRONTEND_DIR}', where there is no cudnn_frontend.h, nor in "
                        "include/ below it")
  endif()
  set(EBB_HAVE_CUDNN_FRONTEND ${EBB_HAVE_CUDNN})
endif()
