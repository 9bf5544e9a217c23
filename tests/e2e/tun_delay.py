"""tun_delay.py DELAY_MS NAMESPACE ADDRESS NAMESPACE ADDRESS: connects two network namespaces by a link that delays each packet."""
import ctypes, fcntl, heapq, os, select, struct, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 1, 0x1000


def tun(namespace, address):
    with open(f"/run/netns/{namespace}") as net:
        if libc.setns(net.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
    for command in (f"addr add {address}/24 dev wire", "link set wire mtu 9000 up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True)
    return fd


delay = float(sys.argv[1]) / 1000
fds = [tun(sys.argv[2], sys.argv[3]), tun(sys.argv[4], sys.argv[5])]
print("ready", flush=True)
queue, count = [], 0
while True:
    wait = max(queue[0][0] - time.monotonic(), 0) if queue else None
    for fd in select.select(fds, [], [], wait)[0]:
        packet = os.read(fd, 65536)
        count += 1
        heapq.heappush(queue, (time.monotonic() + delay, count, fds[fd == fds[0]], packet))
    while queue and queue[0][0] <= time.monotonic():
        _, _, to, packet = heapq.heappop(queue)
        try:
            os.write(to, packet)
        except BlockingIOError:
            pass  # a full queue drops packets, as a router does
