# Runs within llama.cpp's own CMakeLists.txt: the library alone is wanted, not the helpers of its
# programs, which take as long to compile.
set(LLAMA_BUILD_COMMON OFF)
