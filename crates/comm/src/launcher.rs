//! Who started this process.

/// A launcher of MPI processes, as its environment variables tell: known without MPI, so that a program built without the
/// feature `mpi` can say what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// `mpirun` or `srun`.
    pub name: &'static str,
    /// This process among those that it started.
    pub rank: usize,
    /// How many these are.
    pub ranks: usize,
}

/// Variables that launchers set to the number of processes. Slurm's own says how many a job may have, also where none was
/// started by `srun`; with it comes the process's number within its step.
const SIZES: [(&str, &str, &str); 3] = [
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("mpirun", "PMI_SIZE", "PMI_RANK"),
];

impl Launcher {
    /// The launcher of this process, if one started it.
    pub fn of_this_process() -> Option<Self> {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        SIZES.iter().find_map(|(name, size, rank)| {
            let (ranks, rank) = (number(size)?, number(rank)?);
            (rank < ranks).then_some(Self { name, rank, ranks })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<(&'static str, usize)> {
        let all: std::collections::HashMap<_, _> = variables.iter().copied().collect();
        Launcher::from(|name| all.get(name).map(ToString::to_string)).map(|l| (l.name, l.ranks))
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")]), Some(("mpirun", 4)));
        assert_eq!(found(&[("SLURM_STEP_NUM_TASKS", "16"), ("SLURM_PROCID", "0")]), Some(("srun", 16)));
        assert_eq!(found(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), Some(("mpirun", 2)));
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "4")]), None);
        assert_eq!(found(&[("PMI_SIZE", "two"), ("PMI_RANK", "1")]), None);
        assert_eq!(found(&[]), None);
    }
}
