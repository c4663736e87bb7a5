//! What this build contains, what this machine has, and what to do about the rest.
//!
//! Optional libraries are looked for at run time, in the places where the loader, a CUDA toolkit or Python wheels put
//! them, and asked for their version; nothing is started and no device is touched beyond counting.

mod gpus;
mod library;

use serde_json::{Value, json};

use crate::{VERSION, machine};
use library::LIBRARIES;

pub use gpus::Gpu;
pub(crate) use gpus::gpus;

/// What this build and this machine can do.
///
/// ```
/// let found = graphweft::Doctor::look();
/// assert!(found.cores >= 1);
/// assert!(found.backends.iter().any(|backend| backend.name == "cpu" && backend.found.is_some()));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Doctor {
    /// Parts of Graphweft that can be left out of a build.
    pub backends: Vec<Library>,
    /// The name of the processor.
    pub cpu: String,
    /// Threads that can run at once.
    pub cores: usize,
    /// Bytes of memory; 0 where the operating system does not say.
    pub memory: u64,
    /// Instruction sets that kernels make use of.
    pub simd: Vec<&'static str>,
    /// The GPUs that this build can use.
    pub gpus: Vec<Gpu>,
    /// Optional libraries.
    pub libraries: Vec<Library>,
}

/// A part of Graphweft that can be left out of a build, or a library that one needs; and whether it is here.
///
/// ```
/// let libraries = graphweft::Doctor::look().libraries;
/// assert!(libraries.iter().all(|library| library.found.is_some() || !library.remedy.is_empty()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// What it is called.
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// How to get it.
    pub remedy: &'static str,
    /// The file, if it was found.
    pub found: Option<String>,
    /// Its version.
    pub version: String,
    /// More worth knowing, such as the GPUs; often empty.
    pub detail: String,
}

/// Name, purpose, and whether this build has it.
const BACKENDS: [(&str, &str, bool); 3] = [
    ("cpu", "graphs on the CPU, all cores", true),
    ("metis", "METIS partitioner", cfg!(feature = "metis")),
    ("cuda", "kernels on NVIDIA GPUs", cfg!(feature = "cuda")),
];

/// Loads what CUDA needs beside the driver from where toolkits and wheels have it, so that the loader's own search
/// finds it; gives the names of what is missing.
pub(crate) fn load_cuda() -> Vec<&'static str> {
    LIBRARIES.iter().filter(|l| l.with_cuda && l.find().is_none()).map(|l| l.name).collect()
}

impl Doctor {
    /// Looks.
    pub fn look() -> Self {
        let backends = BACKENDS.map(|(name, purpose, built)| {
            let remedy = "build with the feature of this name";
            let found = built.then(|| "this build".to_string());
            Library { name, purpose, remedy, found, version: String::new(), detail: String::new() }
        });
        let others = LIBRARIES.iter().map(|library| {
            let (name, purpose, remedy) = (library.name, library.purpose, library.remedy);
            match library.find() {
                Some(found) => {
                    let (version, detail) = (found.version, found.detail);
                    Library { name, purpose, remedy, found: Some(found.file), version, detail }
                }
                None => Library { name, purpose, remedy, found: None, version: String::new(), detail: String::new() },
            }
        });
        let libraries = [library::mpi()].into_iter().chain(others).collect();
        Self {
            backends: backends.to_vec(),
            cpu: machine::cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: machine::memory_bytes().unwrap_or(0),
            simd: machine::simd(),
            gpus: gpus(),
            libraries,
        }
    }

    /// As `graphweft doctor --json` prints it.
    pub fn to_json(&self) -> Value {
        let backends = self.backends.iter().map(|b| (b.name.to_string(), b.found.is_some().into()));
        json!({
            "version": env!("CARGO_PKG_VERSION"), "build": VERSION,
            "backends": backends.collect::<serde_json::Map<_, _>>(),
            "machine": {
                "cpu": self.cpu, "cores": self.cores, "memory_bytes": self.memory, "simd": self.simd
            },
            "gpus": self.gpus.iter().map(|g| json!({
                "name": g.name, "memory_bytes": g.memory, "architecture": g.architecture, "processors": g.processors,
            })).collect::<Vec<Value>>(),
            "libraries": self.libraries.iter().map(|l| match &l.found {
                Some(file) => {
                    json!({ "name": l.name, "found": true, "file": file, "version": l.version, "detail": l.detail })
                }
                None => json!({ "name": l.name, "found": false, "remedy": l.remedy }),
            }).collect::<Vec<Value>>(),
        })
    }
}
