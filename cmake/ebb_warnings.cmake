# ebb_warnings: linked PRIVATE by every target of this project, so that no flag reaches a consumer.
add_library(ebb_warnings INTERFACE)
target_compile_options(ebb_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  $<$<BOOL:${EBB_WARNINGS_AS_ERRORS}>:-Werror>)
