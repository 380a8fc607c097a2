# EBB_SANITIZE builds every target of this folder with the sanitizers named. A finding ends the program, so that
# the test that caused it fails.
if(EBB_SANITIZE)
  if(NOT EBB_SANITIZE MATCHES "^(address,undefined|address|undefined|thread)$")
    message(FATAL_ERROR "EBB_SANITIZE is '${EBB_SANITIZE}'; give address,undefined or address or undefined or thread")
  endif()
  add_compile_options(-fsanitize=${EBB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${EBB_SANITIZE})
  # For the few tests that cannot run so; each compiler has its own way to say it.
  if(EBB_SANITIZE MATCHES "address")
    add_compile_definitions(EBB_SANITIZES_ADDRESSES)
  elseif(EBB_SANITIZE MATCHES "thread")
    add_compile_definitions(EBB_SANITIZES_THREADS)
  endif()
  # The code of tests and of programs beside the library is long and runs once: with clang, optimising it takes longer than
  # that saves. What they test is optimised, and what computes.
  set(ebb_test_code_options $<$<CXX_COMPILER_ID:Clang>:-O0>)
  set(ebb_timeout_scale 5)
else()
  set(ebb_test_code_options)
  set(ebb_timeout_scale 1)
endif()
