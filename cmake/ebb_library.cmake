# The library in three targets, and what stands on it:
#   ebb_core  static archive of all layers below the C ABI; tests and benchmarks of those layers link it
#   ebb_capi  static archive of the C ABI on top of it; tests that go through ebb.h link it
#   ebb       libebb itself, shared or static, with the extern "C" functions alone exported: ebb::ebb
#   ebb_tools static archive of machine and model profiles and of the simulation, for the command line, tests and
#             benchmarks; nothing of it is in libebb
#   ebb_cli   static archive of the program's commands, which tests call; the program is ebb_program, named ebb
# Each source is compiled once; twice where libebb is compiled as one source of its own (below).
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

# How all code that can go into libebb is compiled. The header-only libraries stay inside: nothing of them reaches a
# consumer.
function(ebb_compile_as_library name)
  set_target_properties(${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:fmt::fmt-header-only>
    $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> Threads::Threads $<BUILD_INTERFACE:ebb_warnings>)
  target_compile_definitions(${name} PRIVATE EBB_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
  if(EBB_UNITY_BUILD)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

file(GLOB_RECURSE ebb_core_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.cpp")
list(FILTER ebb_core_sources EXCLUDE REGEX "/src/(cli|capi|model|simulate|device/cuda)/")
file(GLOB ebb_capi_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/*.cpp")

add_library(ebb_core_objects OBJECT ${ebb_core_sources})
ebb_compile_as_library(ebb_core_objects)
add_library(ebb_core STATIC $<TARGET_OBJECTS:ebb_core_objects>)
target_link_libraries(ebb_core PUBLIC fmt::fmt-header-only nlohmann_json::nlohmann_json Threads::Threads)
target_include_directories(ebb_core PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")

add_library(ebb_capi_objects OBJECT ${ebb_capi_sources})
ebb_compile_as_library(ebb_capi_objects)
add_library(ebb_capi STATIC $<TARGET_OBJECTS:ebb_capi_objects>)
target_link_libraries(ebb_capi PUBLIC ebb_core)

file(GLOB ebb_tools_sources CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/src/model/*.cpp" "${PROJECT_SOURCE_DIR}/src/simulate/*.cpp")
# The files of profiles/ are part of the program.
file(GLOB ebb_profiles CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiles/*/*.json")
set(ebb_embedded_profiles "${PROJECT_BINARY_DIR}/generated/embedded_profiles.cpp")
set(ebb_embed_script "${PROJECT_SOURCE_DIR}/cmake/ebb_embed_profiles.cmake")
add_custom_command(OUTPUT "${ebb_embedded_profiles}"
  COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}/profiles" "-DOUT=${ebb_embedded_profiles}"
          -P "${ebb_embed_script}"
  DEPENDS ${ebb_profiles} "${ebb_embed_script}" VERBATIM)
add_library(ebb_tools STATIC ${ebb_tools_sources} "${ebb_embedded_profiles}")
ebb_compile_as_library(ebb_tools)
target_link_libraries(ebb_tools PUBLIC ebb_capi)

# CLI11 is needed for the program only: a project that adds Ebb for its library need not have it.
if(EBB_BUILD_PROGRAM)
  find_package(CLI11 2.1 REQUIRED)
  file(GLOB ebb_cli_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cli/*.cpp")
  list(FILTER ebb_cli_sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(ebb_cli STATIC ${ebb_cli_sources})
  ebb_compile_as_library(ebb_cli)
  target_link_libraries(ebb_cli PUBLIC ebb_tools PRIVATE CLI11::CLI11)
  add_executable(ebb_program "${PROJECT_SOURCE_DIR}/src/cli/main.cpp")
  set_target_properties(ebb_program PROPERTIES OUTPUT_NAME ebb)
  target_link_libraries(ebb_program PRIVATE ebb_cli ebb_warnings)
endif()

if(EBB_UNITY_BUILD AND ebb_library_type STREQUAL "SHARED" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND
   NOT EBB_SANITIZE)
  # One source, of which nothing but the exported functions is visible: the layers between a call and the device are
  # inlined into each other, which saves a fifth of the time of a call (benchmark hot_path). What GCC stops inlining at
  # is a share by which the source grows: the larger the library became, the more of a call was cut off.
  add_library(ebb SHARED ${ebb_core_sources} ${ebb_capi_sources})
  ebb_compile_as_library(ebb)
  target_compile_options(ebb PRIVATE -fwhole-program --param=inline-unit-growth=200)
  target_compile_definitions(ebb PRIVATE
    "EBB_API=__attribute__((visibility(\"default\"), externally_visible))")
else()
  add_library(ebb ${ebb_library_type} $<TARGET_OBJECTS:ebb_core_objects> $<TARGET_OBJECTS:ebb_capi_objects>)
endif()
add_library(ebb::ebb ALIAS ebb)
target_include_directories(ebb INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:include>")
target_link_libraries(ebb PRIVATE Threads::Threads)
set_target_properties(ebb PROPERTIES
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
if(ebb_library_type STREQUAL "SHARED")
  set(ebb_map "${PROJECT_SOURCE_DIR}/cmake/ebb.map")
  target_link_options(ebb PRIVATE "LINKER:--version-script=${ebb_map}")
  if(NOT EBB_SANITIZE)
    target_link_options(ebb PRIVATE LINKER:--no-undefined)
  endif()
  set_target_properties(ebb PROPERTIES LINK_DEPENDS "${ebb_map}")
else()
  # A C program that links the archive needs the C++ runtime, and CMake adds it only to projects that enabled C++.
  target_link_libraries(ebb INTERFACE stdc++ m)
endif()
