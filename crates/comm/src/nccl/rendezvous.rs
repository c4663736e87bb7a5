//! Where the ranks of a run meet, by the variables that launchers set.

use crate::error::{Error, Result};
use crate::launcher::Launcher;

/// The port of PyTorch's launchers.
const PORT: u16 = 29_500;

/// Who this process is among the ranks, and where rank 0 listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// A name or an address of rank 0's machine.
    pub host: String,
    /// A port of it that is free.
    pub port: u16,
}

impl Rendezvous {
    /// As the environment says: `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, which `torchrun` sets and people know; where
    /// the first two are missing, those of `mpirun` or `srun`. Rank 0 is on this machine if no address is given. Nothing if nobody
    /// says that there are others.
    ///
    /// # Errors
    /// [`Error::Argument`] that says what is missing or wrong.
    pub fn of_this_process() -> Result<Option<Self>> {
        Self::from(
            |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()),
            Launcher::of_this_process(),
        )
    }

    fn from(variable: impl Fn(&str) -> Option<String>, launcher: Option<Launcher>) -> Result<Option<Self>> {
        let wrong = |problem: String| Error::Argument { op: "nccl", problem };
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |text: String| {
                let number = text.trim().parse::<usize>();
                number.map_err(|_| wrong(format!("{name} is {text:?}, which is no number")))
            };
            variable(name).map(parse).transpose()
        };
        let (rank, ranks) = match (number("RANK")?, number("WORLD_SIZE")?, launcher) {
            (Some(rank), Some(ranks), _) => (rank, ranks),
            (None, None, Some(launcher)) => (launcher.rank, launcher.ranks),
            (None, None, None) => return Ok(None),
            _ => return Err(wrong("RANK and WORLD_SIZE must both be set: one of them is missing".into())),
        };
        if rank >= ranks {
            return Err(wrong(format!("RANK is {rank}, but WORLD_SIZE {ranks}")));
        }
        let port = match number("MASTER_PORT")? {
            None => PORT,
            Some(port) => {
                // torchrun itself listens there.
                let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|x| x.eq_ignore_ascii_case("true"));
                let port = u16::try_from(port + usize::from(taken));
                port.map_err(|_| wrong(format!("MASTER_PORT is {port:?}, which is no port")))?
            }
        };
        let host = variable("MASTER_ADDR").unwrap_or_else(|| "127.0.0.1".into());
        Ok(Some(Self { rank, ranks, host, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)], launcher: Option<Launcher>) -> Result<Option<Rendezvous>> {
        let all: std::collections::HashMap<_, _> = variables.iter().copied().collect();
        Rendezvous::from(|name| all.get(name).map(ToString::to_string), launcher)
    }

    fn found(variables: &[(&str, &str)], launcher: Option<Launcher>) -> (usize, usize, String, u16) {
        let found = told(variables, launcher).unwrap().unwrap();
        (found.rank, found.ranks, found.host, found.port)
    }

    #[test]
    fn launchers_say_who_is_who() {
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node7"), ("MASTER_PORT", "4000")];
        assert_eq!(found(&torchrun, None), (3, 4, "node7".into(), 4000));
        let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(found(&agent, None).3, 4001);
        let mpirun = Some(Launcher { name: "mpirun", rank: 1, ranks: 2 });
        assert_eq!(found(&[], mpirun), (1, 2, "127.0.0.1".into(), PORT));
        assert_eq!(found(&torchrun, mpirun).0, 3, "what is inside counts");
        assert_eq!(told(&[("MASTER_PORT", "4000")], None).unwrap(), None, "nobody says who is who");
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        for (variables, part) in [
            (&[("RANK", "0")][..], "RANK and WORLD_SIZE"),
            (&[("WORLD_SIZE", "2")], "RANK and WORLD_SIZE"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK is 2"),
            (&[("RANK", "x"), ("WORLD_SIZE", "2")], "no number"),
            (&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "70000")], "no port"),
        ] {
            let error = told(variables, None).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
