# cmake -DLIBRARY=FILE -DOUT=FILE -P build_id.cmake
# Writes a C file that defines KERNELS_BUILD: the start of the SHA-256 of the kernel library. Two programs with the same
# value run the same machine code in their kernels, so their speeds can be compared.
file(SHA256 ${LIBRARY} hash)
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUT}.new "#include \"advisor/run/run.h\"\nconst char KERNELS_BUILD[] = \"${hash}\";\n")
file(RENAME ${OUT}.new ${OUT})
