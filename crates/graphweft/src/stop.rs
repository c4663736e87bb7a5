//! Asking a run to stop.

use crate::error::Result;

/// Asks a run to stop, from any thread: it ends with a checkpoint and an error of the kind
/// [`Stopped`](crate::ErrorKind::Stopped). One rank that learns from the whole graph leaves the step that it is in,
/// which then has not begun; several end after the epoch that they are in, as does the first epoch. Clones are the same
/// request.
///
/// ```
/// use graphweft::{ErrorKind, Run, Stop};
/// # let dir = tempfile::tempdir().unwrap();
/// let stop = Stop::new();
/// let asked = stop.clone();
/// let run = Run::new("sbm:60:3:4:f=8").epochs(1000).output(dir.path().join("run")).stop(&stop);
/// // Here by an observer; as well by another thread.
/// let error = run.on_epoch(move |epoch| if epoch.number == 3 { asked.request() }).train().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Stopped);
/// assert!(error.checkpoint().unwrap().exists());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(graphweft_train::Stop);

impl Stop {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that is asked by SIGTERM, SIGINT, SIGUSR1 and SIGHUP, as the program has it. Where no run looks for it, the
    /// process ends with exit code 75 and what was not finished is removed; so it does at a second signal.
    ///
    /// # Errors
    /// If the operating system does not let this process listen.
    pub fn on_signals() -> Result<Self> {
        Ok(Self(graphweft_train::Stop::on_signals()?))
    }

    /// Asks.
    pub fn request(&self) {
        self.0.request();
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested()
    }

    pub(crate) fn inner(&self) -> graphweft_train::Stop {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Mutex;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::extend::{
        Computed, Context, Embedding, Head, Init, Layer, Model, ModelInfo, ModelKeys, Network, Reach, Shape, Tape, Var,
    };
    use crate::{ErrorKind, Run};

    /// Whom to ask, and in which epoch.
    static ASKED: Mutex<Option<(Stop, u64)>> = Mutex::new(None);

    /// A layer that does nothing but ask, once, in the middle of a step.
    struct Asking;

    impl Layer for Asking {
        fn name(&self) -> String {
            "asking".into()
        }

        fn forward(&self, _: &mut Tape, cx: &Context, state: &[Var]) -> Computed<Vec<Var>> {
            // A rehearsal computes nothing: whoever reads numbers there gets ones. Nobody asks within one.
            let computes = state[0].value().to_vec::<f32>()?.iter().any(|x| *x != 1.0);
            let mut asked = ASKED.lock().unwrap();
            if computes && asked.as_ref().is_some_and(|(_, epoch)| cx.epoch == *epoch) {
                asked.take().unwrap().0.request();
            }
            Ok(state.to_vec())
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Interrupted {}

    impl Model for Interrupted {
        fn describe(&self) -> ModelInfo {
            ModelInfo::new(Reach::Edges, 4, 1)
        }

        fn network(&self, init: &Init<'_>, shape: &Shape) -> Computed<Network> {
            let input = Rc::new(Embedding::new(init, "input", shape, 4)?) as Rc<dyn Layer>;
            Ok(Network::new(vec![input, Rc::new(Asking), Rc::new(Head::new(init, "output", 4, shape.classes)?)]))
        }
    }

    impl ModelKeys for Interrupted {
        const NAME: &'static str = "interrupted";
        const ABOUT: &'static str = "asks to stop within a step";
    }

    #[test]
    fn a_step_that_is_left_has_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let run =
            |name: &str| Run::new("sbm:60:3:4:f=8").own_model::<Interrupted>().epochs(6).output(dir.path().join(name));
        let whole = run("whole").train().unwrap();
        for (ranks, saved) in [(1, 3), (2, 4)] {
            let (name, stop) = (format!("stopped-{ranks}"), Stop::new());
            *ASKED.lock().unwrap() = Some((stop.clone(), 4));
            let error = run(&name).ranks(ranks).stop(&stop).train().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            let checkpoint = error.checkpoint().unwrap().to_path_buf();
            let epoch = checkpoint.file_name().unwrap().to_string_lossy().into_owned();
            assert!(checkpoint.exists() && epoch.ends_with(&saved.to_string()), "{epoch}: {error}");
            let rest = run(&name).ranks(ranks).resume().train().unwrap();
            assert_eq!(rest.seeds[0].losses.len(), 6);
            if ranks == 1 {
                assert_eq!(rest.seeds[0].losses, whole.seeds[0].losses, "bit for bit");
            }
        }
        // In the first epoch there is nothing to go back to: it is ended.
        let stop = Stop::new();
        *ASKED.lock().unwrap() = Some((stop.clone(), 1));
        let error = run("first").stop(&stop).train().unwrap_err();
        assert!(error.checkpoint().unwrap().exists(), "{error}");
    }
}
