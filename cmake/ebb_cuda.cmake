# The CUDA backend, where a toolkit is found:
#   ebb_cuda_core  static archive of the backend without the real CUDA functions; tests link it with a double of them
# EBB_HAVE_CUDA says whether there is one.
set(EBB_CUDA "AUTO" CACHE STRING "The CUDA backend: AUTO (where a toolkit is found), ON (a toolkit is required) or OFF")
set_property(CACHE EBB_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT EBB_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "EBB_CUDA is '${EBB_CUDA}'; give AUTO, ON or OFF")
endif()

set(EBB_HAVE_CUDA FALSE)
if(NOT EBB_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 13.0 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(EBB_HAVE_CUDA TRUE)
  elseif(EBB_CUDA STREQUAL "ON")
    message(FATAL_ERROR "EBB_CUDA is ON, and no CUDA toolkit of version 13.0 or newer with nvcc was found; set CUDAToolkit_ROOT")
  endif()
endif()
if(NOT EBB_HAVE_CUDA)
  return()
endif()

file(GLOB ebb_cuda_core_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/cuda/*.cpp")
add_library(ebb_cuda_core STATIC ${ebb_cuda_core_sources})
ebb_compile_as_library(ebb_cuda_core)
target_include_directories(ebb_cuda_core SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(ebb_cuda_core PUBLIC ebb_core)
