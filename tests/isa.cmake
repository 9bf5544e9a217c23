# The ISA levels of this machine below its best, each with the /proc/cpuinfo word that proves it. QDYNO_ISA only takes
# features away, so running a room's tests at each of them tests the kernels that an older machine would choose. The
# plain run, without QDYNO_ISA, tests the best level. It skips the levels in QDYNO_TEST_OTHER_LEVELS; run by hand, a test
# skips none. The kernels are tested at every level; the engine, which chooses among them, at three: without any, with
# those of the most common processors, and the best.
#
# Cross-built tests (aarch64.cmake) run on an emulated processor: the best there is, or for neon one that has nothing
# more, so that an instruction too new would end the test. Emulation is slow, and tests that can leave out what takes
# long do so where they see QDYNO_TEST_EMULATED.
set(QDYNO_TEST_ISA_kernels ref)
set(QDYNO_TEST_ENVIRONMENT "")
if(CMAKE_CROSSCOMPILING)
  list(APPEND QDYNO_TEST_ISA_kernels neon)
  set(QDYNO_TEST_ENVIRONMENT QDYNO_TEST_EMULATED=1)
  set(QDYNO_TEST_ENVIRONMENT_neon QEMU_CPU=cortex-a53)
elseif(EXISTS /proc/cpuinfo)
  file(READ /proc/cpuinfo cpuinfo)
  string(REGEX MATCH "(flags|Features)[ \t]*:[^\n]*" cpu_words "${cpuinfo}")
  foreach(pair sse41:sse4_1 avx2:avx2 avxvnni:avx_vnni avx512:avx512bw avx512vnni:avx512_vnni avx512bf16:avx512_bf16
               amx:amx_int8 neon:asimd dotprod:asimddp)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 level)
    list(GET pair 1 word)
    if("${cpu_words} " MATCHES " ${word} ")
      list(APPEND QDYNO_TEST_ISA_kernels ${level})
    endif()
  endforeach()
  list(POP_BACK QDYNO_TEST_ISA_kernels) # the best: the plain run
endif()
set(QDYNO_TEST_ISA_engine "")
if(NOT CMAKE_CROSSCOMPILING) # emulation takes its time: there the engine runs once
  set(QDYNO_TEST_ISA_engine ${QDYNO_TEST_ISA_kernels})
  list(FILTER QDYNO_TEST_ISA_engine INCLUDE REGEX "^(ref|avx2|neon)$")
endif()
