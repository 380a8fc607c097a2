# EBB_SANITIZE builds every target of this folder with the sanitizers named. A finding ends the program, so that
# the test that caused it fails.
if(EBB_SANITIZE)
  if(NOT EBB_SANITIZE MATCHES "^(address,undefined|address|undefined|thread)$")
    message(FATAL_ERROR "EBB_SANITIZE is '${EBB_SANITIZE}'; give address,undefined or address or undefined or thread")
  endif()
  add_compile_options(-fsanitize=${EBB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${EBB_SANITIZE})
  set(ebb_timeout_scale 5)
else()
  set(ebb_timeout_scale 1)
endif()
