//! Who started this process, and which rank it is: the one place where variables of launchers are read.
//!
//! | launcher | rank, ranks | on this machine |
//! |---|---|---|
//! | torchrun | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
//! | mpirun of Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `…_SIZE` |
//! | mpirun of MPICH | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | `SLURM_LOCALID`, `SLURM_STEP_TASKS_PER_NODE` |
//!
//! `RANK` and `WORLD_SIZE` count before all others: whoever sets them inside of `mpirun` or `srun` means them. Rank 0
//! listens at `MASTER_ADDR` and `MASTER_PORT`, which `torchrun` sets and people know. Without them `srun` tells enough:
//! the first machine of `SLURM_STEP_NODELIST` has rank 0, and the numbers of job and step make a port.

use std::fmt;

use crate::error::{Error, Result};

/// The port of PyTorch's launchers.
const PORT: u16 = 29_500;

/// The first port for steps of Slurm, and how many there are: below those that systems give out by themselves.
const SLURM_PORTS: (u16, usize) = (20_000, 10_000);

/// What started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// PyTorch's `torchrun`.
    Torchrun,
    /// The `mpirun` of Open MPI.
    OpenMpi,
    /// The `mpirun` of MPICH and its relatives.
    Mpich,
    /// Slurm's `srun`.
    Srun,
    /// Something that sets `RANK` and `WORLD_SIZE` and does not say what it is.
    Unnamed,
}

impl fmt::Display for Starter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torchrun => "torchrun",
            Self::OpenMpi | Self::Mpich => "mpirun",
            Self::Srun => "srun",
            Self::Unnamed => "somebody",
        })
    }
}

/// What a launcher tells the processes that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Who says so.
    pub starter: Starter,
    /// This process among those that it started.
    pub rank: usize,
    /// How many these are.
    pub ranks: usize,
    /// This process among those on this machine.
    pub local_rank: Option<usize>,
    /// How many these are.
    pub local_ranks: Option<usize>,
    /// A name or an address of rank 0's machine; this one if nobody says.
    pub address: String,
    /// A port of it that is free.
    pub port: u16,
    /// How often the job was started again after a failure.
    pub restarts: u64,
}

/// Variables by which a launcher is known.
struct Known {
    starter: Starter,
    rank: &'static str,
    ranks: &'static str,
    /// A number that only its processes have.
    beside: &'static str,
}

/// Slurm says how many tasks a job may have also where none was started by `srun`; only those of a step were.
const KNOWN: [Known; 5] = [
    Known { starter: Starter::Torchrun, rank: "RANK", ranks: "WORLD_SIZE", beside: "LOCAL_RANK" },
    Known { starter: Starter::OpenMpi, rank: "OMPI_COMM_WORLD_RANK", ranks: "OMPI_COMM_WORLD_SIZE", beside: "" },
    Known { starter: Starter::Srun, rank: "SLURM_PROCID", ranks: "SLURM_STEP_NUM_TASKS", beside: "" },
    Known { starter: Starter::Srun, rank: "SLURM_PROCID", ranks: "SLURM_NTASKS", beside: "SLURM_STEP_ID" },
    Known { starter: Starter::Mpich, rank: "PMI_RANK", ranks: "PMI_SIZE", beside: "" },
];

impl Launcher {
    /// The launcher of this process, if one started it. Variables that make no sense are nobody's.
    pub fn of_this_process() -> Option<Self> {
        Variables(&variable).launcher()
    }

    /// The same for ranks that know of each other by these variables alone.
    ///
    /// # Errors
    /// [`Error::Argument`] that says what is missing or wrong.
    pub fn checked() -> Result<Option<Self>> {
        Variables(&variable).checked()
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// An environment.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.text(name)?.trim().parse().ok()
    }

    /// The first of these that is a number.
    fn first(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.number(name))
    }

    fn launcher(&self) -> Option<Launcher> {
        let who = |rank: &str, ranks: &str| {
            let who = (self.number(rank)?, self.number(ranks)?);
            (who.0 < who.1).then_some(who)
        };
        let known = KNOWN.iter().find_map(|known| {
            let beside = known.beside.is_empty() || self.number(known.beside).is_some();
            beside.then(|| who(known.rank, known.ranks)).flatten().map(|who| (known.starter, who))
        });
        let set = who("RANK", "WORLD_SIZE");
        let (starter, (rank, ranks)) = match (known, set) {
            (Some((starter, _)), Some(who)) => (starter, who),
            (Some(known), None) => known,
            (None, Some(who)) => (Starter::Unnamed, who),
            (None, None) => return None,
        };
        let local = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
        Some(Launcher {
            starter,
            rank,
            ranks,
            local_rank: self.first(&local),
            local_ranks: self.local_ranks(),
            address: self.address(starter),
            port: self.port().and_then(|port| port.try_into().ok()).unwrap_or_else(|| self.free_port(starter)),
            restarts: self.first(&["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"]).unwrap_or(0) as u64,
        })
    }

    fn local_ranks(&self) -> Option<usize> {
        let told = self.first(&["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]);
        let by_slurm = || of_slurm(&self.text("SLURM_STEP_TASKS_PER_NODE")?, self.number("SLURM_NODEID")?);
        told.or_else(by_slurm).filter(|count| *count > 0)
    }

    /// Where rank 0 is.
    fn address(&self, starter: Starter) -> String {
        let by_slurm = || {
            // On one machine nobody else need hear of it.
            let several = self.number("SLURM_STEP_NUM_NODES").or(self.number("SLURM_NNODES")).is_some_and(|n| n > 1);
            let list = self.text("SLURM_STEP_NODELIST").or(self.text("SLURM_JOB_NODELIST"));
            (starter == Starter::Srun && several).then(|| first_host(&list?)).flatten()
        };
        self.text("MASTER_ADDR").or_else(by_slurm).unwrap_or_else(|| "127.0.0.1".into())
    }

    /// A port that no other step on the same machine has, as far as a launcher's numbers tell.
    fn free_port(&self, starter: Starter) -> u16 {
        let job = self.number("SLURM_JOB_ID").filter(|_| starter == Starter::Srun);
        let step = self.number("SLURM_STEP_ID").unwrap_or(0);
        job.map_or(PORT, |job| SLURM_PORTS.0 + (job.wrapping_mul(7).wrapping_add(step) % SLURM_PORTS.1) as u16)
    }

    fn port(&self) -> Option<usize> {
        // torchrun itself listens at the port that it tells.
        let agent = self.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|x| x.eq_ignore_ascii_case("true"));
        self.number("MASTER_PORT")?.checked_add(usize::from(agent))
    }

    fn checked(&self) -> Result<Option<Launcher>> {
        let wrong = |problem: String| Err(Error::Argument { op: "launcher", problem });
        for name in ["RANK", "WORLD_SIZE", "MASTER_PORT"] {
            if let (Some(text), None) = (self.text(name), self.number(name)) {
                return wrong(format!("{name} is {text:?}, which is no number"));
            }
        }
        match (self.number("RANK"), self.number("WORLD_SIZE")) {
            (Some(_), None) | (None, Some(_)) => {
                return wrong("RANK and WORLD_SIZE must both be set: one of them is missing".into());
            }
            (Some(rank), Some(ranks)) if rank >= ranks => {
                return wrong(format!("RANK is {rank}, but WORLD_SIZE {ranks}"));
            }
            _ => {}
        }
        match self.port() {
            Some(port) if u16::try_from(port).is_err() => wrong(format!("MASTER_PORT is {port}, which is no port")),
            _ => Ok(self.launcher()),
        }
    }
}

/// The tasks of a node in Slurm's list of all nodes: `2(x3),1` are three nodes of two and one of one.
fn of_slurm(list: &str, mut node: usize) -> Option<usize> {
    for some in list.split(',') {
        let (tasks, times) = match some.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (some, 1),
        };
        if node < times {
            return tasks.trim().parse().ok();
        }
        node -= times;
    }
    None
}

/// The first of Slurm's list of machines: `node[03-05,9],gpu1` begins with `node03`.
fn first_host(list: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), list.trim());
    while let Some(at) = rest.find(['[', ',']) {
        host.push_str(&rest[..at]);
        let Some(numbers) = rest[at..].strip_prefix('[') else { return Some(host) };
        let (numbers, after) = numbers.split_once(']')?;
        host.push_str(numbers.split(['-', ',']).next()?);
        rest = after;
    }
    host.push_str(rest);
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: [(&str, &str); 7] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node7"),
        ("MASTER_PORT", "4000"),
        ("TORCHELASTIC_RESTART_COUNT", "5"),
    ];

    fn checked(set: &[(&str, &str)]) -> Result<Option<Launcher>> {
        Variables(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())).checked()
    }

    fn found(set: &[(&str, &str)]) -> Option<Launcher> {
        Variables(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())).launcher()
    }

    fn alone(starter: Starter, rank: usize, ranks: usize) -> Launcher {
        let (address, port) = ("127.0.0.1".into(), PORT);
        Launcher { starter, rank, ranks, local_rank: None, local_ranks: None, address, port, restarts: 0 }
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let open_mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")];
        assert_eq!(found(&open_mpi), Some(alone(Starter::OpenMpi, 3, 4)));
        assert_eq!(found(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), Some(alone(Starter::Mpich, 1, 2)));
        assert_eq!(found(&[("RANK", "1"), ("WORLD_SIZE", "2")]), Some(alone(Starter::Unnamed, 1, 2)));
        let torchrun = Launcher {
            local_rank: Some(1),
            local_ranks: Some(2),
            address: "node7".into(),
            port: 4000,
            restarts: 5,
            ..alone(Starter::Torchrun, 3, 4)
        };
        assert_eq!(found(&TORCHRUN), Some(torchrun));
        for none in [&[("OMPI_COMM_WORLD_SIZE", "4")][..], &[("PMI_SIZE", "two"), ("PMI_RANK", "1")], &[]] {
            assert_eq!(found(none), None);
        }
        assert_eq!(found(&[("WORLD_SIZE", "4"), ("RANK", "gold")]), None);
    }

    #[test]
    fn slurm_starts_the_tasks_of_a_step_not_of_a_job() {
        assert_eq!(found(&[("SLURM_STEP_NUM_TASKS", "16"), ("SLURM_PROCID", "0")]), Some(alone(Starter::Srun, 0, 16)));
        // A script of a job may have many tasks, and is one process.
        let job = [("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0")];
        assert_eq!((found(&job[..2]), found(&job)), (None, Some(alone(Starter::Srun, 0, 8))));
        let places = [("SLURM_LOCALID", "1"), ("SLURM_NODEID", "3"), ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1")];
        let placed = found(&[&job[..], &places, &[("SLURM_RESTART_COUNT", "2")]].concat()).unwrap();
        assert_eq!((placed.local_rank, placed.local_ranks, placed.restarts), (Some(1), Some(1), 2));
    }

    #[test]
    fn slurm_tells_how_many_tasks_a_node_has() {
        for (list, node, tasks) in
            [("4", 0, Some(4)), ("2(x3),1", 2, Some(2)), ("2(x3),1", 3, Some(1)), ("2(x3),1", 4, None)]
        {
            assert_eq!(of_slurm(list, node), tasks, "{list} {node}");
        }
        assert_eq!((of_slurm("", 0), of_slurm("2(x", 0), of_slurm("many", 0)), (None, None, None));
    }

    #[test]
    fn slurm_tells_where_rank_0_is() {
        for (list, host) in [
            ("node7", "node7"),
            ("node[03-05,9],gpu1", "node03"),
            ("gpu1,node[1-2]", "gpu1"),
            ("r[1-2]n[07,9]x,a", "r1n07x"),
            ("node[12]", "node12"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
        assert_eq!((first_host(""), first_host("node[1")), (None, None));
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_STEP_NODELIST", "node[03-04]")];
        let job = [("SLURM_JOB_ID", "123456"), ("SLURM_STEP_ID", "2")];
        let two = found(&[&step[..], &job, &[("SLURM_STEP_NUM_NODES", "2")]].concat()).unwrap();
        assert_eq!((two.address.as_str(), two.port), ("node03", 20_000 + 4194));
        let one = found(&[&step[..], &job, &[("SLURM_STEP_NUM_NODES", "1")]].concat()).unwrap();
        assert_eq!((one.address.as_str(), one.port), ("127.0.0.1", two.port));
        let set = found(&[&step[..], &job, &[("MASTER_ADDR", "a"), ("MASTER_PORT", "9")]].concat()).unwrap();
        assert_eq!((set.address.as_str(), set.port), ("a", 9));
    }

    #[test]
    fn rank_and_world_size_count_before_what_is_around_them() {
        let mpirun = [("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "1")];
        let inside = found(&[&mpirun[..], &TORCHRUN[..2]].concat()).unwrap();
        assert_eq!((inside.starter, inside.rank, inside.ranks), (Starter::OpenMpi, 3, 4));
    }

    #[test]
    fn ranks_meet_beside_torchruns_own_port() {
        let agent = [&TORCHRUN[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(found(&agent).unwrap().port, 4001);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_where_all_depends_on_it() {
        for (variables, part) in [
            (&[("RANK", "0")][..], "RANK and WORLD_SIZE"),
            (&[("WORLD_SIZE", "2")], "RANK and WORLD_SIZE"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK is 2"),
            (&[("RANK", "x"), ("WORLD_SIZE", "2")], "no number"),
            (&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "70000")], "no port"),
        ] {
            let error = checked(variables).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(checked(&[("MASTER_PORT", "4000")]).unwrap(), None, "nobody says who is who");
        assert_eq!(checked(&TORCHRUN).unwrap(), found(&TORCHRUN));
    }
}
