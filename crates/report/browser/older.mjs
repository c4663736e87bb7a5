// A run folder as older versions left it: that of commit 5f7b157 (November 2026), before results said which scores are
// better, and before there were usage.json, candidates.json and the machine. Written by hand after the code of that
// commit (crates/train/src/run_dir.rs, plan.rs, trainer.rs), not by its program.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FILES = {
  "config.toml": `[data]
graph = "sbm:60:3:4:f=8"
graph_seed = 0
symmetrise = false
self_loops = "keep"
normalise = "none"

[model]
name = "gcn"
hidden = 16
layers = 2

[train]
epochs = 3
optimizer = "adam"
lr = 0.01
dropout = 0.5
metric = "accuracy"
evaluate_every = 1

[run]
seed = 4
seeds = 1
checkpoint_every = 50
keep = 2

# end
`,
  "plan.json": `{
  "strategy": "halo",
  "ranks": 2,
  "why": "of several ranks each takes a part and moves only the rows along cut edges",
  "remat": "none",
  "partition": {
    "method": "metis",
    "parts": 2
  },
  "predicted": {
    "epoch_ms": 2.5,
    "error": 0.2,
    "peak_bytes": 123456
  },
  "measured": {
    "epoch_ms": 2.25,
    "peak_bytes": 123456
  }
}
`,
  "metrics.jsonl": `{"epoch":1,"loss":1.25,"lr":0.01,"gradient_norm":0.75,"train":40.0,"valid":50.0,"test":45.0}
{"epoch":2,"loss":1.0,"lr":0.01,"gradient_norm":0.5,"train":60.0,"valid":75.0,"test":70.0,"valid_loss":0.875}
{"epoch":3,"loss":0.75,"lr":0.01,"gradient_norm":0.25,"train":70.0,"valid":75.0,"test":65.0,"valid_loss":0.9375}
`,
  "times.jsonl": `{"epoch":1,"learn_ms":4.5,"evaluate_ms":1.0}
{"epoch":2,"learn_ms":2.25,"evaluate_ms":0.75}
{"epoch":3,"learn_ms":2.0,"evaluate_ms":0.75}
`,
  "run.json": `[
  {
    "command": [
      "graphweft",
      "train",
      "--graph",
      "sbm:60:3:4:f=8"
    ],
    "folder": "/home/a",
    "host": "node3",
    "version": "0.1.0 (5f7b157)",
    "time": 1795002216,
    "epoch": 0,
    "ranks": 2
  }
]
`,
  "result.json": `{
  "seed": 4,
  "metric": "accuracy",
  "split": "default",
  "epochs": 3,
  "parameters": 195,
  "best": {
    "epoch": 2,
    "train": 60.0,
    "valid": 75.0,
    "test": 70.0,
    "valid_loss": 0.875
  }
}
`,
  "trace.json": `[
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"rank 1"}},
{"name":"forward","cat":"train","ph":"X","pid":0,"tid":0,"ts":1795002216000000,"dur":900,"args":{"epoch":1}},
{"name":"forward","cat":"train","ph":"X","pid":0,"tid":1,"ts":1795002216000010,"dur":800,"args":{"epoch":1}}
]
`,
};

export function olderRun(root, name = "older") {
  const folder = join(root, name);
  mkdirSync(folder, { recursive: true });
  for (const [file, text] of Object.entries(FILES)) writeFileSync(join(folder, file), text);
  return folder;
}
