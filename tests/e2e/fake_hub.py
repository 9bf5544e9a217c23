#!/usr/bin/env python3
"""A hub, a registry and ModelScope for tests, on loopback, that answer as the documents of the real ones say.

  fake_hub.py FOLDER [--page N] [--rate BYTES] [--ports FILE]

FOLDER/OWNER/REPO/PATH are the files of repositories. Two ports are written to --ports: the hub on 127.0.0.1, and "another host",
localhost on another port, to which the hub redirects for content with links that are signed. FOLDER/faults.json says what goes
wrong; it is read again for every request:
  "cut": [N, BYTES]      the next N content responses end after BYTES bytes
  "cut_random": [N, MAX] the next N content responses end after 1..MAX bytes
  "busy": [N, SECONDS]   the next N requests are answered 429 with Retry-After; a negative number: by the header ratelimit instead
  "broken": N            the next N requests are answered 503
  "expired": N           the next N signed links are refused with 403
  "gated", "private": [REPO...]   without the token "secret"
  "renamed": {OLD: NEW}  relative redirects
  "wrong": true          content has one wrong byte
  "no_ranges": true      content is sent whole, with 200
  "no_ranges_after": N   the first N ranges are served, then content is sent whole, with 200
  "no_ranges_at": N      the Nth range is answered with the whole content, with 200
  "refuse_ranges": N     the next N ranges are answered 416
  "refuse_as": BYTES     refused ranges say that the file has so many bytes
  "more": BYTES          a range goes on so many bytes after its end
  "slow": BYTES          at most so many bytes a second
  "direct": true         content comes from the hub itself, without a redirect
Everything that arrives is written to FOLDER/requests.log: one line of JSON each: server, method, path, authorization, range."""
import argparse, hashlib, json, os, random, sys, threading, time, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
hashes = {}


def sha256_of(path):
    key = (path, os.path.getmtime(path), os.path.getsize(path))
    if key not in hashes:
        with open(path, "rb") as f:
            hashes[key] = hashlib.sha256(f.read()).hexdigest()
    return hashes[key]


def git_sha1_of(path):
    with open(path, "rb") as f:
        data = f.read()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_lfs(path):
    return path.endswith(".gguf")


def commit_of(repo):
    return hashlib.sha1(repo.encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    # ---- faults

    def fault(self, name, default=None):
        return self.faults.get(name, default)

    def take(self, name):
        """One of a number of faults; its value, or None when none is left."""
        with lock:
            have = spent.setdefault(name, 0)
            value = self.faults.get(name)
            if value is None:
                return None
            many = value[0] if isinstance(value, list) else value
            if have >= many:
                return None
            spent[name] = have + 1
            return value

    def begin(self):
        try:
            with open(os.path.join(args.folder, "faults.json")) as f:
                text = f.read()
        except OSError:
            text = "{}"
        global last_faults
        with lock:
            if text != last_faults:
                last_faults = text
                spent.clear()
        self.faults = json.loads(text or "{}")
        line = {"server": self.server.name, "method": self.command, "path": self.path,
                "authorization": self.headers.get("Authorization"), "range": self.headers.get("Range")}
        with lock, open(os.path.join(args.folder, "requests.log"), "a") as f:
            f.write(json.dumps(line) + "\n")

    # ---- answers

    def answer(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code, message):
        self.answer(status, b"", {"X-Error-Code": code, "X-Error-Message": message} if code else {})

    def give(self, document, headers={}):
        self.answer(200, json.dumps(document).encode(), {"Content-Type": "application/json", **headers})

    def content(self, path):
        size = os.path.getsize(path)
        first, last, status = 0, size - 1, 200
        wanted = self.headers.get("Range")
        headers = {"Accept-Ranges": "bytes"}
        whole = self.fault("no_ranges", False)
        if "no_ranges_after" in self.faults:
            whole = not self.take("no_ranges_after")
        if "no_ranges_at" in self.faults:
            whole = self.take("no_ranges_at") is not None and spent["no_ranges_at"] == self.faults["no_ranges_at"]
        if wanted and not whole:
            a, b = wanted.removeprefix("bytes=").split("-")
            first, last, status = int(a), min(int(b) if b else last, last), 206
            if first >= size or self.take("refuse_ranges"):
                return self.answer(416, b"", {"Content-Range": f"bytes */{self.fault('refuse_as', size)}"})
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        with open(path, "rb") as f:
            f.seek(first)
            part = f.read(last + 1 - first + (self.fault("more", 0) if status == 206 else 0))
        if self.fault("wrong") and last == size - 1:
            part = part[:-1] + bytes([part[-1] ^ 1])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut, at_random = self.take("cut"), None
        if not cut:
            at_random = self.take("cut_random")
        if cut or at_random:
            part = part[:cut[1] if cut else random.randint(1, at_random[1])]
            self.close_connection = True
        slow = self.fault("slow")
        step = max(1, slow // 20) if slow else 1 << 20
        for at in range(0, len(part), step):
            if slow:
                time.sleep(len(part[at:at + step]) / slow)
            self.wfile.write(part[at:at + step])

    # ---- the other host: content by signed links

    def other_host(self):
        url = urllib.parse.urlsplit(self.path)
        part = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        if part[:3] == ["api", "v1", "models"]:
            return self.modelscope(part[3:], urllib.parse.parse_qs(url.query))
        if "signature=" not in url.query or self.take("expired"):
            return self.refuse(403, None, "")
        self.content(os.path.join(args.folder, urllib.parse.unquote(url.path).lstrip("/")))

    # ---- the hub

    def allowed(self, repo):
        token = self.headers.get("Authorization") == "Bearer secret"
        if repo in self.fault("private", []) and not token:
            self.refuse(401, "RepoNotFound", "Repository not found")
            return False
        return True

    def redirect(self, where):
        self.answer(307, b"", {"Location": where})

    def hub(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        part = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        if self.fault("busy") and (busy := self.take("busy")):
            if busy[1] < 0:
                return self.answer(429, b"", {"ratelimit": f'"api";r=0;t={-busy[1] - 1}'})
            return self.answer(429, b"", {"Retry-After": busy[1]})
        if self.take("broken"):
            return self.answer(503, b"overloaded")
        if part[0] == "v2":
            return self.registry(part[1:])
        if part[:3] == ["api", "v1", "models"]:
            return self.modelscope(part[3:], query)
        if part[:2] == ["api", "models"] and len(part) == 2:
            return self.search(query)
        at = 2 if part[:2] == ["api", "models"] else 0
        if len(part) < at + 3:
            return self.answer(404)
        repo = "/".join(part[at:at + 2])
        new = self.fault("renamed", {}).get(repo)
        if new:
            return self.redirect(self.path.replace(repo, new, 1))
        if not self.allowed(repo):
            return
        folder = os.path.join(args.folder, repo)
        if not os.path.isdir(folder):
            return self.refuse(401 if not self.headers.get("Authorization") else 404, "RepoNotFound", "Repository not found")
        rest = part[at + 2:]
        if at and rest[0] == "refs":
            return self.give({"tags": [], "converts": [], "branches": [
                {"name": "main", "ref": "refs/heads/main", "targetCommit": commit_of(repo)}]})
        if at and rest[0] in ("tree", "revision"):
            if rest[1] not in ("main", commit_of(repo)):
                return self.refuse(404, "RevisionNotFound", "Invalid rev id")
            return self.tree(repo, folder, query) if rest[0] == "tree" else self.give({"id": repo, "sha": commit_of(repo)})
        if rest[0] == "resolve":
            return self.resolve(repo, folder, rest[1], "/".join(rest[2:]))
        self.answer(404)

    def files(self, folder):
        names = []
        for at, _, files in os.walk(folder):
            names += [os.path.relpath(os.path.join(at, f), folder) for f in files]
        return sorted(names)

    def tree(self, repo, folder, query):
        names, page = self.files(folder), args.page
        first = int(query.get("cursor", ["0"])[0])
        list_ = []
        for name in names[first:first + page]:
            path = os.path.join(folder, name)
            size = os.path.getsize(path)
            entry = {"type": "file", "oid": git_sha1_of(path), "size": size, "path": name}
            if is_lfs(name):
                entry["lfs"] = {"oid": sha256_of(path), "size": size, "pointerSize": 134}
            list_.append(entry)
        headers = {}
        if first + page < len(names):
            base = f"http://127.0.0.1:{self.server.server_address[1]}{urllib.parse.urlsplit(self.path).path}"
            headers["Link"] = f'<{base}?recursive=true&cursor={first + page}>; rel="next"'
        self.give(list_, headers)

    def resolve(self, repo, folder, revision, name):
        path = os.path.join(folder, name)
        if repo in self.fault("gated", []) and self.headers.get("Authorization") != "Bearer secret":
            return self.refuse(401, "GatedRepo", f"Access to model {repo} is restricted.")
        if revision not in ("main", commit_of(repo)):
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        if not os.path.isfile(path):
            return self.refuse(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit_of(repo)}
        if not is_lfs(name):
            headers |= {"ETag": f'"{git_sha1_of(path)}"', "Content-Length": os.path.getsize(path)}
            if self.command == "HEAD":
                return self.answer(200, b"", headers)
            return self.content(path)
        headers |= {"X-Linked-Etag": f'"{sha256_of(path)}"', "X-Linked-Size": os.path.getsize(path), "ETag": '"link"'}
        if self.fault("direct"):
            if self.command == "HEAD":
                return self.answer(200, b"", headers | {"Content-Length": os.path.getsize(path)})
            return self.content(path)
        where = urllib.parse.quote(f"/{repo}/{name}")
        self.answer(302, b"", headers | {"Location": f"http://localhost:{other.server_address[1]}{where}?signature=abc&Expires=1"})

    def search(self, query):
        text = query.get("search", [""])[0].lower()
        found = []
        for owner in sorted(os.listdir(args.folder)):
            folder = os.path.join(args.folder, owner)
            if os.path.isdir(folder) and owner not in ("ollama", "modelscope"):
                found += [f"{owner}/{r}" for r in sorted(os.listdir(folder)) if text in f"{owner}/{r}".lower()]
        gated = self.fault("gated", [])
        self.give([{"id": r, "downloads": 1000 - i, "likes": i, "gated": "manual" if r in gated else False}
                   for i, r in enumerate(found)][:int(query.get("limit", ["10"])[0])])

    # ---- Ollama's registry: FOLDER/ollama/NAMESPACE/MODEL/TAG is a GGUF file

    def registry(self, part):
        base = os.path.join(args.folder, "ollama", *part[:2])
        extra = {b"{{ .Prompt }}": "template", b'{"model_format":"gguf"}': None}
        if part[2] == "manifests":
            model = os.path.join(base, part[3])
            if not os.path.isfile(model):
                return self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
            kind = "application/vnd.ollama.image."
            layers = [{"mediaType": kind + "model", "digest": "sha256:" + sha256_of(model), "size": os.path.getsize(model)}]
            config = None
            for data, type_ in extra.items():
                d = {"mediaType": kind + type_ if type_ else "application/vnd.docker.container.image.v1+json",
                     "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}
                if type_:
                    layers.append(d)
                else:
                    config = d
            return self.give({"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                              "config": config, "layers": layers})
        digest = part[3].removeprefix("sha256:")
        for data in extra:
            if hashlib.sha256(data).hexdigest() == digest:
                return self.answer(200, data)
        for name in os.listdir(base):
            if sha256_of(os.path.join(base, name)) == digest:
                return self.redirect(f"http://localhost:{other.server_address[1]}/ollama/{part[0]}/{part[1]}/{name}?signature=abc")
        self.answer(404)

    # ---- ModelScope: FOLDER/modelscope/OWNER/REPO/PATH

    def modelscope(self, part, query):
        folder = os.path.join(args.folder, "modelscope", *part[:2])
        if not os.path.isdir(folder):
            return self.answer(404, b'{"Code":10010205001,"Message":"not found"}')
        if part[2:] == ["repo", "files"]:
            return self.give({"Code": 200, "Data": {"Files": [
                {"Path": n, "Name": os.path.basename(n), "Type": "blob", "Size": os.path.getsize(os.path.join(folder, n)),
                 "Sha256": sha256_of(os.path.join(folder, n))} for n in self.files(folder)]}})
        self.content(os.path.join(folder, query["FilePath"][0]))

    def do_GET(self):
        self.begin()
        try:
            if self.server.name == "hub":
                self.hub()
            else:
                self.other_host()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name):
        self.name = name
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request, address):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--page", type=int, default=3)
parser.add_argument("--ports", required=True)
args = parser.parse_args()
spent, last_faults = {}, None
hub, other = Server("hub"), Server("other")
threading.Thread(target=other.serve_forever, daemon=True).start()
with open(args.ports + ".new", "w") as f:
    f.write(f"{hub.server_address[1]} {other.server_address[1]}\n")
os.rename(args.ports + ".new", args.ports)
hub.serve_forever()
