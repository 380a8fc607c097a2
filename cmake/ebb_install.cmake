# Install and export: find_package(ebb) gives ebb::ebb, from any prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/ebb" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS ebb EXPORT ebb-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(EBB_BUILD_PROGRAM)
  install(TARGETS ebb_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
set(ebb_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ebb")
install(EXPORT ebb-targets NAMESPACE ebb:: DESTINATION "${ebb_config_dir}")
# The component "cuda": a library beside libebb, or in the static one.
if(EBB_HAVE_CUDA AND NOT EBB_CUDA_BUILT_IN)
  install(TARGETS ebb_cuda EXPORT ebb-cuda-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT ebb-cuda-targets NAMESPACE ebb:: DESTINATION "${ebb_config_dir}")
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/ebb-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/ebb-config.cmake" INSTALL_DESTINATION "${ebb_config_dir}")
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ebb-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ebb-config.cmake" "${PROJECT_BINARY_DIR}/ebb-config-version.cmake"
        DESTINATION "${ebb_config_dir}")
