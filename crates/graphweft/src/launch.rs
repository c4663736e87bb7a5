//! Starting a program as several processes that MPI connects.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::Stop;
use crate::error::{Error, ErrorKind, Result};

/// How often the launcher is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Starts a program as several processes that MPI connects, and again if one of them is lost.
///
/// ```no_run
/// let launch = graphweft::Launch::new(4).restarts(2);
/// let run = ["train", "--data", "products", "--comm", "mpi", "-o", "runs/products"];
/// let code = launch.run("graphweft", &run, &["--resume"], &graphweft::Stop::new())?;
/// assert_eq!(code, 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    processes: usize,
    restarts: usize,
    hostfile: Option<PathBuf>,
}

impl Launch {
    /// This many processes on this machine.
    pub fn new(processes: usize) -> Self {
        Self { processes, restarts: 0, hostfile: None }
    }

    /// Starts all again, up to so many times, if a process was lost.
    pub fn restarts(self, restarts: usize) -> Self {
        Self { restarts, ..self }
    }

    /// On the machines of a file, a name in each line.
    pub fn hostfile(self, file: impl Into<PathBuf>) -> Self {
        Self { hostfile: Some(file.into()), ..self }
    }

    /// Runs `program` with `arguments`; after a restart also with `again`. Gives the exit code of the processes.
    ///
    /// A request to stop is handed on as SIGUSR1, which launchers pass to their processes: a run saves what it has and
    /// ends with 75.
    ///
    /// # Errors
    /// If there is no launcher, or it cannot be started.
    pub fn run(
        &self,
        program: impl AsRef<OsStr>,
        arguments: &[impl AsRef<OsStr>],
        again: &[&str],
        stop: &Stop,
    ) -> Result<i32> {
        let mpiexec = graphweft_comm::mpi::mpiexec().ok_or_else(|| {
            let remedy = "pip install mpich, or apt-get install openmpi-bin, or load your cluster's MPI module";
            Error::request("there is no mpiexec, which starts processes of MPI", remedy)
        })?;
        let _looking = stop.inner().look();
        for restart in 0..=self.restarts {
            let mut command = self.command(&mpiexec, program.as_ref());
            command.args(arguments).args(if restart == 0 { &[] } else { again });
            let code = self.wait(command, stop)?;
            if restart == self.restarts || !is_loss(code) || stop.is_requested() {
                return Ok(code);
            }
        }
        Ok(ErrorKind::Failure.exit_code().into())
    }

    fn command(&self, mpiexec: &PathBuf, program: &OsStr) -> Command {
        let mut command = Command::new(mpiexec);
        // By these, Open MPI 4 and 5 start more processes than there are cores, and let each use several.
        command
            .envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")])
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            .env("PRTE_MCA_hwloc_default_binding_policy", "none");
        if rustix::process::geteuid().is_root() {
            // It asks root whether that is meant; whoever runs this as root, as in a container, has said so.
            command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        }
        if let Some(file) = &self.hostfile {
            command.arg("-machinefile").arg(file);
        }
        command.arg("-n").arg(self.processes.to_string()).arg(program);
        command
    }

    fn wait(&self, mut command: Command, stop: &Stop) -> Result<i32> {
        let mut child = spawn(&mut command)?;
        let mut told = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(code(status));
            }
            if stop.is_requested() && !told {
                told = true;
                if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    // It may have ended just now.
                    let _ = kill_process(process, Signal::USR1);
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A process that ends when this one does, whatever ends this one.
fn spawn(command: &mut Command) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure makes one system call and allocates nothing.
    let command = unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::TERM)).map_err(std::io::Error::from))
    };
    Ok(command.spawn()?)
}

/// As shells write it.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Whether processes that ended so would come to another end if they were started again: launchers mix the codes of
/// their processes, but one that is mixed is that of a loss.
fn is_loss(code: i32) -> bool {
    use ErrorKind::{BadInput, DoesNotFit, Failure, Stopped, Usage};
    code != 0 && ![Failure, Usage, BadInput, DoesNotFit, Stopped].iter().any(|kind| i32::from(kind.exit_code()) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loss_is_tried_again() {
        // 5 by itself, with what Open MPI and MPICH make of a process that was killed.
        assert!([5, 137, 9, 13, 134].into_iter().all(is_loss));
        assert!(![0, 1, 2, 3, 4, 75].into_iter().any(is_loss));
    }

    #[test]
    fn machines_are_those_of_the_file() {
        let launch = Launch::new(3).hostfile("hosts");
        let command = launch.command(&PathBuf::from("mpiexec"), OsStr::new("program"));
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["-machinefile", "hosts", "-n", "3", "program"]);
    }
}
