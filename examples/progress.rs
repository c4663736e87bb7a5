//! Watches a run and stops it from another thread.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::mpsc;

use graphweft::{Begin, Epoch, ErrorKind, Observer, Result, Run, Stop};

/// Tells another thread of epochs.
struct Watch(mpsc::Sender<Epoch>);

impl Observer for Watch {
    fn begin(&self, begin: &Begin) {
        println!("seed {}: {} epochs", begin.seed, begin.epochs);
    }

    fn epoch(&self, epoch: &Epoch) {
        // Nobody may listen any more.
        let _ = self.0.send(epoch.clone());
    }

    fn note(&self, line: &str) {
        println!("note: {line}");
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (sender, epochs) = mpsc::channel();
    let stop = Stop::new();
    let run = Run::new("sbm:300:3:8:f=8").model("gcn").epochs(100_000).output(dir.path().join("run"));
    let run = run.observer(Arc::new(Watch(sender))).stop(&stop);

    // Handles may be sent to other threads.
    let training = std::thread::spawn(move || run.train());
    for epoch in epochs {
        if epoch.number == 10 {
            println!("loss {:.4}: that is enough", epoch.loss);
            stop.request();
        }
    }
    match training.join() {
        Ok(Err(error)) if error.kind() == ErrorKind::Stopped => {
            println!("stopped; `resume` would go on from {:?}", error.checkpoint().and_then(|path| path.file_name()));
        }
        Ok(other) => println!("{:?}", other.map(|report| report.folder)),
        Err(_) => println!("the thread is gone"),
    }
    Ok(())
}
