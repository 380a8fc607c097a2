# Options, and settings that hold for all targets of this project. Set as plain variables, they end with this
# folder's scope and never reach a parent project.

option(EBB_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(EBB_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(EBB_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(EBB_BUILD_MICRO_BENCHMARKS "Build, of the benchmarks, those that take Google Benchmark" ON)
option(EBB_BUILD_PROGRAM "Build the program ebb" ${PROJECT_IS_TOP_LEVEL})
option(EBB_INSTALL "Generate the install rules" ${PROJECT_IS_TOP_LEVEL})
option(EBB_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" ${PROJECT_IS_TOP_LEVEL})
option(EBB_UNITY_BUILD "Compile each part of the library as one source: faster code, and a faster build from nothing" ON)
option(EBB_PRECOMPILED_HEADERS "Compile what nearly all tests include once; then nothing says that one of them lacks an include"
  OFF)
set(EBB_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, address,undefined or thread")

# BUILD_SHARED_LIBS decides when it is given; declaring it as an option here would set it for the parent too.
if(NOT DEFINED BUILD_SHARED_LIBS OR BUILD_SHARED_LIBS)
  set(ebb_library_type SHARED)
else()
  set(ebb_library_type STATIC)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
  endif()
  if(NOT DEFINED CMAKE_RUNTIME_OUTPUT_DIRECTORY)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(EBB_CCACHE ccache)
  mark_as_advanced(EBB_CCACHE)
  if(EBB_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(launcher "${EBB_CCACHE}")
    if(EBB_PRECOMPILED_HEADERS)
      # Without, ccache keeps no result of a source that uses a precompiled header.
      set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${EBB_CCACHE}")
    endif()
    set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
  endif()
endif()
