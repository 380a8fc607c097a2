# The CUDA backend, where a toolkit is found:
#   ebb_cuda_core  static archive of the backend without the real CUDA functions; tests link it with a double of them
#   ebb_cuda       libebb_cuda, which libebb loads from its own folder: ebb::cuda. One C function is exported
# A static libebb holds all of it and loads nothing. EBB_HAVE_CUDA says whether there is a backend.
set(EBB_CUDA "AUTO" CACHE STRING "The CUDA backend: AUTO (where a toolkit is found), ON (a toolkit is required) or OFF")
set_property(CACHE EBB_CUDA PROPERTY STRINGS AUTO ON OFF)
set(EBB_CUDA_ARCHITECTURES "80-real;90-real;100-virtual" CACHE STRING
  "What the kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES has it: 90, 90-real, 90-virtual")
if(NOT EBB_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "EBB_CUDA is '${EBB_CUDA}'; give AUTO, ON or OFF")
endif()

set(EBB_HAVE_CUDA FALSE)
if(NOT EBB_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 13.0 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
    set(EBB_HAVE_CUDA TRUE)
  elseif(EBB_CUDA STREQUAL "ON")
    message(FATAL_ERROR "EBB_CUDA is ON, and no CUDA toolkit of version 13.0 or newer was found with nvcc and the static "
                        "runtime; CUDAToolkit_ROOT says where to look")
  endif()
endif()
if(NOT EBB_HAVE_CUDA)
  return()
endif()

# nvcc is called as what it is, a compiler of one file, and not made a language of the project: that would ask every
# project that links a static libebb for CUDA too.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(ebb_nvcc_host_compiler "${CMAKE_CXX_COMPILER}")
else()
  find_program(EBB_NVCC_HOST_COMPILER g++ REQUIRED)
  mark_as_advanced(EBB_NVCC_HOST_COMPILER)
  set(ebb_nvcc_host_compiler "${EBB_NVCC_HOST_COMPILER}")
endif()
set(ebb_nvcc_flags -std=c++17 -O2 "-ccbin=${ebb_nvcc_host_compiler}" -Werror=all-warnings
  -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra)
foreach(architecture IN LISTS EBB_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
    message(FATAL_ERROR "EBB_CUDA_ARCHITECTURES has '${architecture}'; give numbers, as in 90, 90-real or 90-virtual")
  endif()
  set(number "${CMAKE_MATCH_1}")
  if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
    list(APPEND ebb_nvcc_flags "-gencode=arch=compute_${number},code=sm_${number}")
  endif()
  if(NOT CMAKE_MATCH_2 STREQUAL "-real")
    list(APPEND ebb_nvcc_flags "-gencode=arch=compute_${number},code=compute_${number}")
  endif()
endforeach()
set(ebb_cuda_kernels "${PROJECT_BINARY_DIR}/generated/ebb_cuda_kernels.o")
add_custom_command(OUTPUT "${ebb_cuda_kernels}"
  COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${CUDAToolkit_NVCC_EXECUTABLE}" ${ebb_nvcc_flags} "-I${PROJECT_SOURCE_DIR}/src"
          -MD -MF "${ebb_cuda_kernels}.d" -c "${PROJECT_SOURCE_DIR}/src/device/cuda/kernels.cu" -o "${ebb_cuda_kernels}"
  DEPENDS "${PROJECT_SOURCE_DIR}/src/device/cuda/kernels.cu" DEPFILE "${ebb_cuda_kernels}.d"
  COMMENT "Building CUDA kernels" VERBATIM)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/generated")
set_source_files_properties("${ebb_cuda_kernels}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

file(GLOB ebb_cuda_core_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/cuda/*.cpp")
# What needs the CUDA runtime itself.
set(ebb_cuda_module_sources
  "${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_module.cpp" "${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_runtime_table.cpp")
list(REMOVE_ITEM ebb_cuda_core_sources ${ebb_cuda_module_sources})
foreach(part core module)
  add_library(ebb_cuda_${part}_objects OBJECT ${ebb_cuda_${part}_sources})
  ebb_compile_as_library(ebb_cuda_${part}_objects)
  target_include_directories(ebb_cuda_${part}_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endforeach()

if(ebb_library_type STREQUAL "SHARED")
  add_library(ebb_cuda_core STATIC $<TARGET_OBJECTS:ebb_cuda_core_objects>)
  target_link_libraries(ebb_cuda_core PUBLIC ebb_core)
  target_include_directories(ebb_cuda_core SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
  add_library(ebb_cuda SHARED $<TARGET_OBJECTS:ebb_cuda_module_objects> "${ebb_cuda_kernels}")
  add_library(ebb::cuda ALIAS ebb_cuda)
  target_link_libraries(ebb_cuda PRIVATE ebb_cuda_core CUDA::cudart_static)
  set(ebb_cuda_map "${PROJECT_SOURCE_DIR}/cmake/ebb_cuda.map")
  target_link_options(ebb_cuda PRIVATE "LINKER:--version-script=${ebb_cuda_map}")
  if(NOT EBB_SANITIZE)
    target_link_options(ebb_cuda PRIVATE LINKER:--no-undefined)
  endif()
  set_target_properties(ebb_cuda PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS "${ebb_cuda_map}" EXPORT_NAME cuda)
  add_dependencies(ebb ebb_cuda)  # so that it lies beside it
else()
  set(EBB_CUDA_BUILT_IN TRUE)
  foreach(name ebb_core ebb)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:ebb_cuda_core_objects> $<TARGET_OBJECTS:ebb_cuda_module_objects>
      "${ebb_cuda_kernels}")
  endforeach()
  target_compile_definitions(ebb_core_objects PRIVATE EBB_CUDA_BUILT_IN)
  target_link_libraries(ebb_core PUBLIC CUDA::cudart_static)
  # By its path: a project that adds Ebb as a folder does not see the target.
  get_target_property(ebb_cudart_static CUDA::cudart_static IMPORTED_LOCATION)
  target_link_libraries(ebb INTERFACE "$<BUILD_INTERFACE:${ebb_cudart_static}>" "$<INSTALL_INTERFACE:CUDA::cudart_static>"
    dl rt)
  add_library(ebb_cuda_core INTERFACE)
  target_link_libraries(ebb_cuda_core INTERFACE ebb_core)
  target_include_directories(ebb_cuda_core SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  add_library(ebb_cuda INTERFACE)
  target_link_libraries(ebb_cuda INTERFACE ebb)
  add_library(ebb::cuda ALIAS ebb_cuda)
endif()
