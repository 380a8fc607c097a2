# Packages from benchmarks/gpu/bundle in place of installed ones:
#   cmake -DCMAKE_PROJECT_ebb_INCLUDE=benchmarks/gpu/bundle.cmake ...
# What find_package asks for is answered from here alone, whatever the machine has installed.
set(ebb_bundle "${CMAKE_CURRENT_LIST_DIR}/bundle")
if(NOT EXISTS "${ebb_bundle}/contents.txt")
  message(FATAL_ERROR "There is no ${ebb_bundle}: run benchmarks/gpu/bundle.sh on a machine that has Debian packages "
                      "and PyPI, and take the folder along with the working tree")
endif()

# Nothing that needs a GPU is built with Google Benchmark.
set(EBB_BUILD_MICRO_BENCHMARKS OFF)
set(EBB_CUDNN_FRONTEND_DIR "${ebb_bundle}/include")

# Answers find_package(NAME).
function(ebb_bundled name)
  file(STRINGS "${ebb_bundle}/contents.txt" line REGEX "^${name} ")
  string(REGEX REPLACE "^[^ ]+ ([0-9.]+).*" "\\1" version "${line}")
  string(TOLOWER "${name}" file)
  set(file "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/${file}-config")
  file(WRITE "${file}.cmake" "")
  file(WRITE "${file}-version.cmake" "set(PACKAGE_VERSION ${version})\n"
    "if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n")
endfunction()

function(ebb_bundled_headers name target)
  ebb_bundled(${name})
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE "${ebb_bundle}/include")
endfunction()

ebb_bundled_headers(fmt fmt::fmt-header-only)
target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)
ebb_bundled_headers(nlohmann_json nlohmann_json::nlohmann_json)
ebb_bundled_headers(CLI11 CLI11::CLI11)
ebb_bundled_headers(Eigen3 Eigen3::Eigen)

ebb_bundled(GTest)
find_package(Threads REQUIRED)
function(ebb_bundled_test_library target folder source)
  string(REPLACE "::" "_" name "bundled_${target}")
  add_library(${name} STATIC EXCLUDE_FROM_ALL "${ebb_bundle}/googletest/${folder}/src/${source}")
  target_compile_features(${name} PUBLIC cxx_std_14)
  target_include_directories(${name} SYSTEM PUBLIC "${ebb_bundle}/googletest/${folder}/include")
  target_include_directories(${name} PRIVATE "${ebb_bundle}/googletest/${folder}")
  target_link_libraries(${name} PUBLIC ${ARGN} Threads::Threads)
  add_library(${target} ALIAS ${name})
endfunction()
ebb_bundled_test_library(GTest::gtest googletest gtest-all.cc)
ebb_bundled_test_library(GTest::gtest_main googletest gtest_main.cc GTest::gtest)
ebb_bundled_test_library(GTest::gmock googlemock gmock-all.cc GTest::gtest)
