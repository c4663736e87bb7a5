//! `graphweft doctor`: what this build contains, what this machine has, and what to do about the rest.
//!
//! Optional libraries are looked for at run time, in the places where the loader, a CUDA toolkit or Python wheels put them,
//! and asked for their version; nothing is started and no device is touched beyond counting.

mod gpus;
mod library;
pub(crate) mod machine;

use serde_json::{Value, json};

use crate::ui::{Ui, bytes, table};
use crate::version::VERSION;
use gpus::gpus;
use library::{Found, LIBRARIES};
use machine::Machine;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// A part of Graphweft that can be left out of a build.
struct Backend {
    name: &'static str,
    what: &'static str,
    built: bool,
}

const BACKENDS: &[Backend] = &[
    Backend { name: "cpu", what: "graphs on the CPU, all cores", built: true },
    Backend { name: "metis", what: "METIS partitioner", built: cfg!(feature = "metis") },
    Backend { name: "mpi", what: "ranks as MPI processes", built: cfg!(feature = "mpi") },
    Backend { name: "cuda", what: "kernels on NVIDIA GPUs", built: cfg!(feature = "cuda") },
];

/// Loads what CUDA needs beside the driver from where toolkits and wheels have it, so that the loader's own search finds it; gives
/// the names of what is missing.
pub(crate) fn load_cuda() -> Vec<&'static str> {
    LIBRARIES.iter().filter(|l| l.with_cuda && l.find().is_none()).map(|l| l.name).collect()
}

pub(crate) fn run(_: &Args, ui: &Ui) -> anyhow::Result<()> {
    let machine = Machine::look();
    let found: Vec<_> = LIBRARIES.iter().map(|l| (l, l.find())).collect();
    let gpus = gpus();
    let json = json!({
        "version": env!("CARGO_PKG_VERSION"), "build": VERSION,
        "backends": BACKENDS.iter().map(|b| (b.name.to_string(), b.built.into())).collect::<serde_json::Map<_, _>>(),
        "machine": { "cpu": machine.cpu, "cores": machine.cores, "memory_bytes": machine.memory, "simd": machine.simd },
        "gpus": gpus.iter().map(|g| json!({
            "name": g.name, "memory_bytes": g.memory, "architecture": g.architecture, "processors": g.processors,
        })).collect::<Vec<Value>>(),
        "libraries": found.iter().map(|(l, f)| match f {
            Some(Found { file, version, detail }) => {
                json!({ "name": l.name, "found": true, "file": file, "version": version, "detail": detail })
            }
            None => json!({ "name": l.name, "found": false, "remedy": l.remedy }),
        }).collect::<Vec<Value>>(),
    });
    ui.result(&json, || {
        let yes = |b: bool| if b { "yes" } else { "not in this build" }.to_string();
        let backends = BACKENDS.iter().map(|b| [b.name.to_string(), yes(b.built), b.what.to_string()]);
        let libraries = found.iter().map(|(l, f)| match f {
            Some(f) => [l.name.into(), f.version.clone(), [&f.file, f.detail.as_str()].join(" ").trim().into()],
            None => [l.name.into(), "not found".into(), format!("{}: {}", l.purpose, l.remedy)],
        });
        format!(
            "graphweft {}\n\n{} × {}, {} of memory, {}\n{}\n{}\n\n{}",
            VERSION,
            machine.cores,
            machine.cpu,
            bytes(machine.memory),
            machine.simd.join(" "),
            gpus.iter().map(gpus::Line::to_string).collect::<String>(),
            table(["backend", "built", "what"], backends),
            table(["library", "version", "where, or what to do"], libraries),
        )
    })
}
