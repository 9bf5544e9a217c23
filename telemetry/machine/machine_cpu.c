/* telemetry/machine/machine_cpu.c - identifies the processor from /proc/cpuinfo and sysfs only, so that
 * recordings of any architecture can be read on any other. */
#include "telemetry/machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/machine/machine_parts.h"
#include "base/sysfs/sysfs.h"

/* True when `text` contains `word` as a whole word: "avx2" does not contain "avx". */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n) {
        bool begins = p == text || p[-1] == ' ' || p[-1] == '\t';
        if (begins && (p[n] == '\0' || p[n] == ' ')) return true;
    }
    return false;
}

static bool has_words(const char *text, const char *words)
{
    char list[128];
    snprintf(list, sizeof list, "%s", words);
    for (char *save, *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (!has_word(text, w)) return false;
    return true;
}

uint32_t machine_isa_from_flags(const char *flags)
{
    /* Linux lists a flag only if the kernel also saves the registers, so XGETBV need not be checked. */
    static const struct {
        uint32_t bit;
        const char *words; /* all of them */
    } NEEDS[] = {
        { ISA_SSE41, "sse4_1" },
        { ISA_AVX2, "avx2 fma f16c bmi2" },
        { ISA_AVX512, "avx512f avx512bw avx512dq avx512vl" },
        { ISA_AVX512VNNI, "avx512_vnni avx512f" },
        { ISA_AVX512BF16, "avx512_bf16 avx512f" },
        { ISA_AMX, "amx_tile amx_int8 amx_bf16" },
        { ISA_AVXVNNI, "avx_vnni avx2" },
        { ISA_NEON, "asimd" },
        { ISA_DOTPROD, "asimddp" },
    };
    uint32_t isa = 0;
    for (size_t i = 0; i < COUNT_OF(NEEDS); i++)
        if (has_words(flags, NEEDS[i].words)) isa |= NEEDS[i].bit;
    return isa;
}

/* On ARM /proc/cpuinfo contains no model name, only the numbers of the MIDR_EL1 register. */
static void arm_name(const char *cpuinfo, const char *root, char *buf, size_t size)
{
    static const struct {
        const char *part, *name;
    } PARTS[] = {
        { "0xd03", "Cortex-A53" },  { "0xd05", "Cortex-A55" },  { "0xd07", "Cortex-A57" },
        { "0xd08", "Cortex-A72" },  { "0xd0b", "Cortex-A76" },  { "0xd0c", "Neoverse-N1" },
        { "0xd40", "Neoverse-V1" }, { "0xd49", "Neoverse-N2" }, { "0xd4f", "Neoverse-V2" },
    };
    char implementer[16], part[16], board[64];
    if (!sys_text_field(cpuinfo, "CPU part", part, sizeof part)) return;
    sys_text_field(cpuinfo, "CPU implementer", implementer, sizeof implementer);
    const char *name = NULL;
    for (size_t i = 0; i < COUNT_OF(PARTS) && !strcmp(implementer, "0x41"); i++)
        if (!strcmp(PARTS[i].part, part)) name = PARTS[i].name;
    struct str text = { 0 };
    if (name)
        str_printf(&text, "ARM %s", name);
    else
        str_printf(&text, "ARM implementer %s part %s", implementer, part);
    if (sys_read(root, board, sizeof board, "/proc/device-tree/model") > 0) str_printf(&text, " (%s)", board);
    snprintf(buf, size, "%s", str_text(&text));
    str_free(&text);
}

enum { PACKAGES = 64, LIST_BYTES = 1 << 16 };
struct topology {
    const char *root;
    int l3_index; /* N of cache/indexN; -1: none */
    int processors, sockets;
    int64_t package[PACKAGES];
    int64_t l3_bytes;
    int online[USABLE_CPUS_MOST]; /* [processors]; a container may show any part of the machine */
    int shared[USABLE_CPUS_MOST]; /* scratch: the processors of a cache */
    bool visible[USABLE_CPUS_MOST];
    char text[LIST_BYTES]; /* scratch: a list of every second processor of 8192 has 20 KB */
};

static void topology_open(struct topology *t, const char *root)
{
    t->root = root;
    t->l3_index = -1;
    sys_read(root, t->text, sizeof t->text, "/sys/devices/system/cpu/online");
    t->processors = MIN(MAX(sys_cpulist(t->text, t->online, USABLE_CPUS_MOST), 0), USABLE_CPUS_MOST);
    for (int i = 0; i < t->processors; i++)
        if (t->online[i] < USABLE_CPUS_MOST) t->visible[t->online[i]] = true;
}

/* Is `cpu` the first visible processor of the L3 cache that it uses? */
static bool first_of_l3(struct topology *t, int cpu)
{
    sys_read(t->root, t->text, sizeof t->text, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
             cpu, t->l3_index);
    const int n = MIN(sys_cpulist(t->text, t->shared, USABLE_CPUS_MOST), USABLE_CPUS_MOST);
    for (int i = 0; i < n; i++)
        if (t->shared[i] < USABLE_CPUS_MOST && t->visible[t->shared[i]]) return t->shared[i] == cpu;
    return false;
}

static int64_t cache_size(const char *root, int cpu, int index)
{
    char text[32];
    int64_t bytes;
    if (sys_read(root, text, sizeof text, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index) <=
        0)
        return -1;
    return str_to_bytes(text, &bytes) && bytes > 0 ? bytes : -1;
}

static void topology_add(struct topology *t, int cpu)
{
    int64_t package = sys_integer(t->root, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    int i = 0;
    while (i < t->sockets && t->package[i] != package) i++;
    if (package >= 0 && i == t->sockets && i < PACKAGES) t->package[t->sockets++] = package;
    if (t->l3_index >= 0 && first_of_l3(t, cpu)) {
        const int64_t size = cache_size(t->root, cpu, t->l3_index);
        if (size > 0) t->l3_bytes += size;
    }
}

/* Reads L1d and L2 of a processor. Returns the index of the L3 cache; -1: none. */
static int caches_detect(struct machine *m, const char *root, int cpu)
{
    int l3 = -1;
    for (int i = 0; i < 8; i++) {
        char type[16];
        int64_t level = sys_integer(root, "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
        sys_read(root, type, sizeof type, "/sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
        if (level < 1 || level > 3 || !strcmp(type, "Instruction")) continue;
        m->cache_bytes[level - 1] = cache_size(root, cpu, i);
        if (level == 3) l3 = i;
    }
    return l3;
}

/* In some containers sysfs has no topology; then counts come from /proc/cpuinfo. */
static void topology_from_cpuinfo(struct machine *m, const char *cpuinfo)
{
    int processors = 0;
    for (const char *p = cpuinfo; (p = strstr(p, "processor\t")); p++)
        processors += p == cpuinfo || p[-1] == '\n';
    if (processors) m->processors = processors;
    double cores = sys_field(cpuinfo, "cpu cores"), siblings = sys_field(cpuinfo, "siblings");
    if (cores >= 1 && siblings >= 1 && processors >= 1) {
        m->sockets = MAX(1, (int)(processors / siblings));
        m->cores = m->sockets * (int)cores;
    }
}

static void hypervisor_detect(struct machine *m, const char *root, const char *flags)
{
    static const struct {
        const char *vendor, *name; /* text in the DMI vendor or product name */
    } VENDORS[] = {
        { "QEMU", "kvm" },
        { "KVM", "kvm" },
        { "VMware", "vmware" },
        { "innotek", "virtualbox" },
        { "VirtualBox", "virtualbox" },
        { "Xen", "xen" },
        { "Microsoft", "hyper-v" },
        { "Amazon EC2", "amazon" },
        { "Google", "google" },
        { "Parallels", "parallels" },
    };
    if (sys_read(root, m->hypervisor, sizeof m->hypervisor, "/sys/hypervisor/type") > 0) return;
    if (!has_word(flags, "hypervisor")) return;
    char vendor[64], product[64];
    sys_read(root, vendor, sizeof vendor, "/sys/class/dmi/id/sys_vendor");
    sys_read(root, product, sizeof product, "/sys/class/dmi/id/product_name");
    snprintf(m->hypervisor, sizeof m->hypervisor, "unnamed");
    for (size_t i = 0; i < COUNT_OF(VENDORS); i++)
        if (strstr(vendor, VENDORS[i].vendor) || strstr(product, VENDORS[i].vendor)) {
            snprintf(m->hypervisor, sizeof m->hypervisor, "%s", VENDORS[i].name);
            return;
        }
}

/* Processors, sockets and caches from sysfs. Returns the first visible processor. */
static int topology_detect(struct machine *m, const char *root)
{
    struct topology *t = calloc(1, sizeof *t);
    if (!t) {
        memory_short_set();
        return 0;
    }
    topology_open(t, root);
    const int first = t->processors ? t->online[0] : 0;
    t->l3_index = caches_detect(m, root, first);
    for (int i = 0; i < t->processors; i++) topology_add(t, t->online[i]);
    if (t->processors) m->processors = t->processors;
    if (t->sockets) m->sockets = t->sockets;
    if (t->l3_bytes) m->cache_bytes[2] = t->l3_bytes;
    free(t);
    return first;
}

void machine_cpu_detect(struct machine *m, const char *root, const char *cpuinfo)
{
    char flags[8192], online[1024];
    if (!sys_text_field(cpuinfo, "flags", flags, sizeof flags))
        sys_text_field(cpuinfo, "Features", flags, sizeof flags);
    m->isa = machine_isa_from_flags(flags);
    if (!sys_text_field(cpuinfo, "model name", m->cpu, sizeof m->cpu))
        arm_name(cpuinfo, root, m->cpu, sizeof m->cpu);

    topology_from_cpuinfo(m, cpuinfo);
    const int first = topology_detect(m, root);
    if (sys_read(root, online, sizeof online, "/sys/devices/system/node/online") > 0 &&
        sys_cpulist_count(online) > 0)
        m->numa_nodes = sys_cpulist_count(online);
    sys_read(root, m->governor, sizeof m->governor, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor",
             first);
    hypervisor_detect(m, root, flags);
}
