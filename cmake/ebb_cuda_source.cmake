# ebb_add_cuda_source(TARGET FILE.cu [NVCC_FLAG...]): compiles it as the library's kernels are (ebb_cuda.cmake), and
# links the object into the target. Headers of include/, src/ and benchmarks/ are found.
function(ebb_add_cuda_source target source)
  cmake_path(ABSOLUTE_PATH source)
  cmake_path(GET source STEM stem)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${stem}.cu.o")
  # One object serves several targets of a folder.
  get_property(is_known SOURCE "${object}" PROPERTY GENERATED)
  if(NOT is_known)
    ebb_compile_cuda("${source}" "${object}" ${ARGN})
  endif()
  target_sources(${target} PRIVATE "${object}")
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

function(ebb_compile_cuda source object)
  cmake_path(GET source STEM stem)
  add_custom_command(OUTPUT "${object}"
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${CUDAToolkit_NVCC_EXECUTABLE}" ${ebb_nvcc_flags}
            "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/src" "-I${PROJECT_SOURCE_DIR}/benchmarks" ${ARGN}
            -MD -MF "${object}.d" -c "${source}" -o "${object}"
    DEPENDS "${source}" DEPFILE "${object}.d" COMMENT "Building CUDA object of ${stem}.cu" VERBATIM)
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endfunction()
