"""Makes the models of this folder and computes their logits: glm4, starcoder, phi2, stablelm, command-r with norms,
exaone4 with windows.

The forward pass is in float64 and shares no code with the engine. Needs numpy. Run it in this folder: python3 make.py
"""

import numpy as np, struct, json, zlib, sys, os

OUT = "./"
V, D, L, H, K, d, F = 64, 32, 2, 4, 2, 8, 24


def gguf(path, arch, kv, tensors):
    def s(x):
        b = x.encode()
        return struct.pack("<Q", len(b)) + b

    def val(v):
        if isinstance(v, bool):
            return struct.pack("<I", 7) + struct.pack("<?", v)
        if isinstance(v, int):
            return struct.pack("<I", 4) + struct.pack("<I", v)
        if isinstance(v, float):
            return struct.pack("<I", 6) + struct.pack("<f", v)
        if isinstance(v, str):
            return struct.pack("<I", 8) + s(v)
        if isinstance(v, list):
            return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
        raise 0

    allkv = {"general.architecture": arch, "general.name": "tiny random"}
    allkv.update({arch + "." + k: v for k, v in kv.items()})
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(allkv))
    for k, v in allkv.items():
        out += s(k) + val(v)
    off = 0
    data = b""
    for n, t in tensors.items():
        b = np.ascontiguousarray(t, dtype="<f4").tobytes()
        out += (
            s(n)
            + struct.pack("<I", t.ndim)
            + b"".join(struct.pack("<Q", x) for x in reversed(t.shape))
            + struct.pack("<IQ", 0, off)
        )
        data += b + b"\0" * (-len(b) % 32)
        off = len(data)
    out += b"\0" * (-len(out) % 32)
    open(path, "wb").write(out + data)


def rms(x, w, e):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + e) * w


def ln(x, w, b, e):
    m = x.mean(-1, keepdims=True)
    y = (x - m) / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + e) * w
    return y if b is None else y + b


silu = lambda x: x / (1 + np.exp(-x))
gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rope(x, n, base, half):
    T = x.shape[0]
    y = x.copy()
    i = np.arange(n // 2)
    a = np.arange(T)[:, None] * base ** (-2.0 * i / n)[None]
    c, s = np.cos(a)[:, None], np.sin(a)[:, None]
    u, v = (x[..., : n // 2], x[..., n // 2 : n]) if half else (x[..., 0:n:2], x[..., 1:n:2])
    p, q = u * c - v * s, u * s + v * c
    if half:
        y[..., : n // 2], y[..., n // 2 : n] = p, q
    else:
        y[..., 0:n:2], y[..., 1:n:2] = p, q
    return y


def attend(q, k, v, scale, window):
    T = q.shape[0]
    o = np.zeros((T, q.shape[1], v.shape[2]))
    for h in range(q.shape[1]):
        g = h // (q.shape[1] // k.shape[1])
        s = q[:, h] @ k[:, g].T * scale
        s[np.triu(np.ones((T, T), bool), 1)] = -np.inf
        if window:
            s[np.tril(np.ones((T, T), bool), -window)] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        o[:, h] = p @ v[:, g]
    return o.reshape(T, -1)


def make(name, arch, opt):
    rng = np.random.Generator(np.random.PCG64([20261, zlib.crc32(name.encode())]))
    T = {}
    kvh = opt.get("kv", K)
    M = lambda n, r, c, g=1.2: T.__setitem__(n, (rng.standard_normal((r, c)) * g / np.sqrt(c)).astype("f4"))
    W = lambda n, *sh: T.__setitem__(n, (1 + 0.25 * rng.standard_normal(sh)).astype("f4"))
    B = lambda n, *sh: T.__setitem__(n, (0.2 * rng.standard_normal(sh)).astype("f4"))
    T["token_embd.weight"] = (0.3 * rng.standard_normal((V, D))).astype("f4")
    if opt.get("pos"):
        T["position_embd.weight"] = (0.2 * rng.standard_normal((opt["ctx"], D))).astype("f4")
    W("output_norm.weight", D)
    if opt["ln"] and not opt.get("nobias"):
        B("output_norm.bias", D)
    M("output.weight", V, D, 2.4)
    if opt.get("outbias"):
        B("output.bias", V)
    for l in range(L):
        p = "blk.%d." % l

        def norm(n):
            W(p + n + ".weight", D)
            if opt["ln"] and not opt.get("nobias"):
                B(p + n + ".bias", D)

        if opt.get("attn_norm", True):
            norm("attn_norm")
        if opt.get("ffn_norm", True):
            norm("ffn_norm")
        if opt.get("post"):
            norm("post_attention_norm")
            norm("post_ffw_norm")
        if opt.get("fused"):
            M(p + "attn_qkv.weight", (H + 2 * kvh) * d, D, 1.6)
            B(p + "attn_qkv.bias", (H + 2 * kvh) * d)
        else:
            for n, r in (("q", H), ("k", kvh), ("v", kvh)):
                M(p + "attn_%s.weight" % n, r * d, D, 1.6)
                if opt.get("qkvb"):
                    B(p + "attn_%s.bias" % n, r * d)
        if opt.get("each"):
            W(p + "attn_q_norm.weight", H, d)
            W(p + "attn_k_norm.weight", kvh, d)
        if opt.get("heads"):
            W(p + "attn_q_norm.weight", d)
            W(p + "attn_k_norm.weight", d)
        M(p + "attn_output.weight", D, H * d)
        if opt.get("ob"):
            B(p + "attn_output.bias", D)
        if opt["ffn"] == "gated":
            M(p + "ffn_gate.weight", F, D)
        M(p + "ffn_up.weight", 2 * F if opt["ffn"] == "swiglu" else F, D)
        M(p + "ffn_down.weight", D, F)
        if opt.get("ob"):
            B(p + "ffn_up.bias", F)
            B(p + "ffn_down.bias", D)
    kv = {
        "block_count": L,
        "embedding_length": D,
        "feed_forward_length": F,
        "context_length": opt["ctx"],
        "attention.head_count": H,
        "attention.head_count_kv": kvh,
        "attention.key_length": d,
        "attention.value_length": d,
        ("attention.layer_norm_epsilon" if opt["ln"] else "attention.layer_norm_rms_epsilon"): opt["eps"],
    }
    if opt.get("rope"):
        kv["rope.dimension_count"] = opt["rope"]
        kv["rope.freq_base"] = opt["base"]
    kv.update(opt.get("keys", {}))
    gguf(OUT + name + ".gguf", arch, kv, T)
    ids = [int(x) for x in rng.integers(0, V, 24)]
    X = {k: v.astype("f8") for k, v in T.items()}
    e = float(np.float32(opt["eps"]))
    base = float(np.float32(opt.get("base", 1e4)))

    def norm(x, n):
        w = X[n + ".weight"]
        return ln(x, w, X.get(n + ".bias"), e) if opt["ln"] else rms(x, w, e)

    def lin(x, n):
        y = x @ X[n + ".weight"].T
        return y + X[n + ".bias"] if n + ".bias" in X else y

    x = X["token_embd.weight"][ids]
    if opt.get("pos"):
        x = x + X["position_embd.weight"][: len(ids)]
    for l in range(L):
        p = "blk.%d." % l
        h = norm(x, p + "attn_norm") if opt.get("attn_norm", True) else x
        window = opt.get("windows", [0] * L)[l]
        if opt.get("fused"):
            y = lin(h, p + "attn_qkv")
            q, k, v = y[:, : H * d], y[:, H * d : (H + kvh) * d], y[:, (H + kvh) * d :]
        else:
            q, k, v = (lin(h, p + "attn_" + n) for n in "qkv")
        q, k, v = (t.reshape(len(ids), -1, d) for t in (q, k, v))
        if opt.get("each"):
            q = ln(q, X[p + "attn_q_norm.weight"], None, e)
            k = ln(k, X[p + "attn_k_norm.weight"], None, e)
        if opt.get("heads"):
            q, k = (rms(t, X[p + "attn_%s_norm.weight" % n], e) for t, n in ((q, "q"), (k, "k")))
        if opt.get("rope") and (window or "windows" not in opt):
            q, k = (rope(t, opt["rope"], base, opt["half"]) for t in (q, k))
        a = lin(attend(q, k, v, 1 / np.sqrt(d), window), p + "attn_output")
        if opt.get("post"):
            a = norm(a, p + "post_attention_norm")

        def ffn(h):
            u = lin(h, p + "ffn_up")
            if opt["ffn"] == "gated":
                u = silu(h @ X[p + "ffn_gate.weight"].T) * u
            elif opt["ffn"] == "swiglu":
                u = silu(u[:, :F]) * u[:, F:]
            else:
                u = gelu(u)
            return lin(u, p + "ffn_down")

        if opt.get("parallel"):
            x = x + a + ffn(h)
        else:
            x = x + a
            f = ffn(norm(x, p + "ffn_norm") if opt.get("ffn_norm", True) else x)
            if opt.get("post"):
                f = norm(f, p + "post_ffw_norm")
            x = x + f
    y = lin(norm(x, "output_norm"), "output") * opt.get("logit_scale", 1)
    y.astype("<f4").tofile(OUT + name + ".logits.f32")
    json.dump(ids, open(OUT + name + ".ids.json", "w"))
    return {
        "name": name,
        "model": name + ".gguf",
        "ids": name + ".ids.json",
        "arch": arch,
        "weights": "F32",
        "n_ids": 24,
        "n_vocab": V,
        "n_ctx": 64,
        "logits": name + ".logits.f32",
        "tolerance_max_abs": 2e-4,
    }


m = [
    make(
        "glm4",
        "glm4",
        dict(ln=False, eps=1e-5, ctx=256, post=True, ffn="swiglu", rope=4, base=1e4, half=False, qkvb=True),
    ),
    make("starcoder", "starcoder", dict(ln=True, eps=1e-5, ctx=64, pos=True, kv=1, fused=True, ob=True, ffn="gelu")),
    make(
        "phi2",
        "phi2",
        dict(
            ln=True,
            eps=1e-5,
            ctx=256,
            rope=4,
            base=1e4,
            half=True,
            qkvb=True,
            ob=True,
            ffn="gelu",
            parallel=True,
            ffn_norm=False,
            outbias=True,
        ),
    ),
    make(
        "phi2-fused",
        "phi2",
        dict(
            ln=True,
            eps=1e-5,
            ctx=256,
            rope=4,
            base=1e4,
            half=True,
            fused=True,
            ob=True,
            ffn="gelu",
            parallel=True,
            ffn_norm=False,
            outbias=True,
        ),
    ),
    make(
        "stablelm",
        "stablelm",
        dict(
            ln=True,
            eps=1e-5,
            ctx=256,
            rope=4,
            base=1e4,
            half=True,
            qkvb=True,
            ffn="gated",
            keys={"use_parallel_residual": False},
        ),
    ),
    make(
        "stablelm-parallel",
        "stablelm",
        dict(
            ln=True,
            eps=1e-5,
            ctx=256,
            rope=4,
            base=1e4,
            half=True,
            each=True,
            ffn="gated",
            parallel=True,
            ffn_norm=False,
            keys={"use_parallel_residual": True},
        ),
    ),
    make(
        "command-r-norms",
        "command-r",
        dict(
            ln=True,
            nobias=True,
            eps=1e-5,
            ctx=256,
            rope=8,
            base=1e4,
            half=False,
            each=True,
            ffn="gated",
            parallel=True,
            ffn_norm=False,
            logit_scale=0.0625,
            keys={"logit_scale": 0.0625},
        ),
    ),
    make(
        "exaone4-windows",
        "exaone4",
        dict(
            ln=False,
            eps=1e-5,
            ctx=256,
            rope=8,
            base=1e4,
            half=True,
            attn_norm=False,
            ffn_norm=False,
            post=True,
            heads=True,
            ffn="gated",
            windows=[8, 0],
            keys={"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False]},
        ),
    ),
]
json.dump(m, open(OUT + "manifest.json", "w"), indent=1)
