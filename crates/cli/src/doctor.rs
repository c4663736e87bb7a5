//! `graphweft doctor`: what this build contains, what this machine has, and what to do about the rest.

use graphweft::{Doctor, Gpu, VERSION};

use crate::ui::{Ui, bytes, table};

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, ui: &Ui) -> anyhow::Result<()> {
    let found = Doctor::look();
    ui.result(&found.to_json(), || {
        let yes = |b: bool| if b { "yes" } else { "not in this build" }.to_string();
        let backends =
            found.backends.iter().map(|b| [b.name.to_string(), yes(b.found.is_some()), b.purpose.to_string()]);
        let libraries = found.libraries.iter().map(|l| match &l.found {
            Some(file) => [l.name.into(), l.version.clone(), [file, l.detail.as_str()].join(" ").trim().into()],
            None => [l.name.into(), "not found".into(), format!("{}: {}", l.purpose, l.remedy)],
        });
        format!(
            "graphweft {}\n\n{} × {}, {} of memory, {}\n{}\n{}\n\n{}",
            VERSION,
            found.cores,
            found.cpu,
            bytes(found.memory),
            found.simd.join(" "),
            found.gpus.iter().map(line).collect::<String>(),
            table(["backend", "built", "what"], backends),
            table(["library", "version", "where, or what to do"], libraries),
        )
    })
}

fn line(gpu: &Gpu) -> String {
    let (memory, processors) = (bytes(gpu.memory), gpu.processors);
    format!("{}, {memory} of memory, {processors} multiprocessors, sm {}\n", gpu.name, gpu.architecture)
}
