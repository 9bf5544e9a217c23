"""A stand-in for an OpenTelemetry collector: stores what it is sent, and answers what it was told to.

    otlp_collector.py FOLDER [PORT]      writes FOLDER/port, then serves

Request N's path, headers and body are FOLDER/N.path, N.headers, N.body. Each answer is the first line of
FOLDER/plan, which is taken off; with none left it is "200". Lines: "503", "503 RETRY-AFTER", "400 TEXT" (a
google.rpc.Status), "partial REJECTED TEXT", "html".
"""
import http.server
import os
import sys

FOLDER = sys.argv[1]


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def text(field, value):
    data = value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def take_plan():
    path = os.path.join(FOLDER, "plan")
    lines = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(line + "\n" for line in lines[1:]))
    return (lines[0] if lines else "200").split(" ", 2)


class Collector(http.server.BaseHTTPRequestHandler):
    requests = 0

    def do_POST(self):
        Collector.requests += 1
        name = os.path.join(FOLDER, f"{Collector.requests:03d}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for ending, data in (("body", body), ("headers", str(self.headers).encode()), ("path", self.path.encode())):
            with open(f"{name}.{ending}", "wb") as f:
                f.write(data)
        kind, *rest = take_plan()
        status, headers, answer, type_ = 200, {}, b"", "application/x-protobuf"
        if kind == "partial":
            partial = varint(1 << 3) + varint(int(rest[0])) + text(2, rest[1])
            answer = varint(1 << 3 | 2) + varint(len(partial)) + partial
        elif kind == "html":
            answer, type_ = b"<html>It works!</html>", "text/html"
        else:
            status = int(kind)
            if status == 400:
                answer = varint(1 << 3) + varint(3) + text(2, " ".join(rest))
            elif rest:
                headers["Retry-After"] = rest[0]
        self.send_response(status)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(len(answer)))
        for k, v in headers.items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Collector)
with open(os.path.join(FOLDER, "port.new"), "w", encoding="utf-8") as f:
    f.write(str(server.server_port))
os.rename(os.path.join(FOLDER, "port.new"), os.path.join(FOLDER, "port"))
server.serve_forever()
