"""The results as Markdown."""

import datetime
import os
import subprocess
from pathlib import Path

NAMES = {
    "ours": "Graphweft",
    "pyg": "PyG TransformerConv",
    "scatter": "torch gather/scatter",
    "compile": "torch.compile",
    "csr": "torch sparse CSR",
    "dgl": "DGL",
    "torch": "torch",
}
TITLES = {
    "attention": ("Attention, 8 heads x 16, forward + backward", "ns per edge"),
    "spmm": ("Sum over neighbours, width 128, forward + backward", "ns per edge"),
    "layer": ("Training step of a 4-layer graph transformer, hidden 128", "seconds"),
    "gemm": ("Dense products, 32768 rows, forward + dx + dW", "GFLOP/s"),
}


def milliseconds(line):
    return line["epoch_ms"] if "epoch_ms" in line else line["forward_ms"] + line["backward_ms"]


def value(op, line):
    """A result in the unit of its table."""
    if line is None:
        return "–"
    if line["status"] != "ok":
        return f"> {line['limit_s']:.0f} s" if line["status"] == "out of time" else line["status"]
    if op == "layer":
        return f"{milliseconds(line) / 1e3:.3f}"
    if op == "gemm":
        parts = ("forward_gflops", "input_gradient_gflops", "weight_gradient_gflops")
        return " / ".join(f"{line[part]:.0f}" for part in parts)
    return f"{milliseconds(line) * 1e6 / line['edges']:.0f}"


def rows(op, lines):
    """One row per graph, threads, implementation and type; the allocators beside each other."""
    groups = {}
    for line in lines:
        key = line["key"]
        row = groups.setdefault((key["graph"], key["threads"], key["impl"], key["dtype"]), {})
        row["default" if key["allocator"] == "-" else key["allocator"]] = line
    # What has finished, the faster allocator first.
    ok = {k: sorted((x for x in row.values() if x["status"] == "ok"), key=milliseconds) for k, row in groups.items()}
    for (graph, threads, impl, dtype), row in groups.items():
        ours = ok.get((graph, threads, "ours", dtype))
        best = ok[graph, threads, impl, dtype]
        ratio = f"{milliseconds(best[0]) / milliseconds(ours[0]):.2f}" if impl != "ours" and ours and best else ""
        tcmalloc = "" if impl == "ours" else value(op, row.get("tcmalloc"))
        cells = [graph, str(threads), f"{NAMES[impl]}, {dtype}", value(op, row.get("default")), tcmalloc, ratio]
        yield cells if op == "gemm" else cells + [f"{best[0]['peak_mib']:.0f}" if best else ""]


def markdown(header, body):
    """A table whose columns also line up in a terminal; the first three are text, the rest numbers."""
    widths = [max(map(len, column)) for column in zip(header, *body)]

    def line(cells):
        padded = (c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths)))
        return f"| {' | '.join(padded)} |"

    rule = "|" + "|".join("-" * (w + 2) if i < 3 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, body)])


def machine():
    """CPU and core count, without anything that names the machine."""
    cpu = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in cpu if line.startswith("model name")), "unknown CPU")
    flags = next((line.split() for line in cpu if line.startswith("flags")), [])
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{model} ({', '.join(wide)}), {os.cpu_count()} cores"


def document(lines):
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    versions = {" ".join(pair) for line in lines for pair in line.get("versions", {}).items()}
    text = [
        "# Graphweft beside its peers",
        f"Made by `benches/peers/run.sh`, {datetime.date.today()}, Graphweft {git}.",
        f"{machine()}; {', '.join(sorted(versions))}.",
        "Medians of at least five runs. Ratio: the peer's time, with the faster allocator, over ours in the same type. "
        "Memory: for Graphweft the whole process, for the peers what it grew by after their libraries were loaded.",
    ]
    for op, (title, unit) in TITLES.items():
        body = list(rows(op, [line for line in lines if line["key"]["op"] == op]))
        if body:
            header = ["in:out" if op == "gemm" else "graph", "threads", "implementation"]
            header += [f"{unit}, as installed", "with tcmalloc", "peer / ours"] + ([] if op == "gemm" else ["peak MiB"])
            text += [f"## {title}", markdown(header, body)]
    return "\n\n".join(text) + "\n"
