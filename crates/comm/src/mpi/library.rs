//! Which MPI is used: it is looked for when it is needed, so that one program fits every machine and needs nothing to
//! be built.
//!
//! The library must be the one whose launcher started the process, else every process is alone in a world of its own.
//! So it is looked for beside the programs that this process descends from, then where the loader looks, then beside
//! the launchers of `PATH` and in the environments of Python and conda. `GRAPHWEFT_MPI` names a file and ends the
//! search.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Object, RTLD_GLOBAL, RTLD_NOW};

use super::abi::{Mpich, OpenMpi, Standard};
use super::raw::{Calls, Loaded, failed};
use crate::error::Result;
use crate::launcher::{Launcher, Starter};

/// Names a library for those who know better.
const VARIABLE: &str = "GRAPHWEFT_MPI";

/// The interface of MPI 5, which MPICH 5 has.
const STANDARD: &str = "libmpi_abi.so.1";
const OPEN_MPI: &str = "libmpi.so.40";
/// MPICH by its common name and by its own.
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];

/// How far back a launcher is looked for: it starts a process of its own on each machine, and shells may be between.
const ANCESTORS: usize = 8;

/// An MPI library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its file, as the loader was asked for it.
    pub file: String,
    /// What it says it is.
    pub version: String,
}

/// The library that ranks as processes would use.
///
/// # Errors
/// If none is found, or none that can be used.
pub fn library() -> Result<Library> {
    open().map(|(library, _)| library)
}

/// The program that starts processes of MPI: the one that `GRAPHWEFT_MPI` belongs to, else the first of `PATH`, else
/// one in the environment of Python or conda that is active.
pub fn mpiexec() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    let beside = named.iter().filter_map(|file| Some(file.parent()?.parent()?.join("bin")));
    let folders: Vec<PathBuf> = beside.chain(path()).chain(environments().map(|folder| folder.join("bin"))).collect();
    folders.iter().flat_map(|folder| ["mpiexec", "mpirun"].map(|name| folder.join(name))).find(|file| file.is_file())
}

/// Loads it.
pub(super) fn open() -> Result<(Library, Box<dyn Calls>)> {
    if let Some(file) = env::var_os(VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from) {
        let unusable = format!("{VARIABLE} names {}, which is no MPI library that can be loaded", file.display());
        return load(&file).ok_or_else(|| failed(unusable));
    }
    let starter = Launcher::of_this_process().map(|launcher| launcher.starter);
    let launchers = beside(ancestors());
    let others: Vec<PathBuf> = beside(path()).into_iter().chain(environments().map(|f| f.join("lib"))).collect();
    let found = names(starter).into_iter().find_map(|name| {
        let places = launchers.iter().map(|folder| folder.join(name));
        let places = places.chain([PathBuf::from(name)]).chain(others.iter().map(|folder| folder.join(name)));
        places.filter(|file| file.parent() == Some(Path::new("")) || file.is_file()).find_map(|file| load(&file))
    });
    let remedy = format!(
        "no library was found: pip install mpich, or apt-get install openmpi-bin, or load your cluster's module, or let \
         {VARIABLE} name its file (libmpi_abi.so.1, libmpi.so.40 or libmpi.so.12)"
    );
    found.ok_or_else(|| failed(remedy))
}

/// Names of files, those that fit the launcher first.
fn names(starter: Option<Starter>) -> Vec<&'static str> {
    match starter {
        Some(Starter::OpenMpi) => vec![OPEN_MPI, STANDARD],
        Some(Starter::Mpich) => vec![STANDARD, MPICH[0], MPICH[1]],
        _ => vec![STANDARD, OPEN_MPI, MPICH[0], MPICH[1]],
    }
}

fn load(file: &Path) -> Option<(Library, Box<dyn Calls>)> {
    // Open MPI's own plug-ins look for its functions among those that all can see.
    // SAFETY: loading runs the initialisers of a well-known library.
    let object = unsafe { Object::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.ok()?;
    let version = version(&object)?;
    let calls: Box<dyn Calls> = if let Some(own) = Loaded::<OpenMpi>::of(&object) {
        Box::new(own)
    } else if file.file_name()?.to_string_lossy().contains("mpi_abi") {
        Box::new(Loaded::<Standard>::of(&object)?)
    } else {
        Box::new(Loaded::<Mpich>::of(&object)?)
    };
    // It starts threads and registers what runs at the exit: it must not be unloaded.
    std::mem::forget(object);
    Some((Library { file: file.display().to_string(), version }, calls))
}

fn version(object: &Object) -> Option<String> {
    // The longest text is 8192 bytes in MPICH, 256 in Open MPI.
    let mut text = [0 as c_char; 16384];
    let mut length: c_int = 0;
    // SAFETY: the signature is that of the MPI standard, which allows this call before MPI is started; the buffer is
    // longer than any library's text and stays zero-terminated.
    let text = unsafe {
        type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
        let get = object.get::<GetVersion>(b"MPI_Get_library_version\0").ok()?;
        if get(text.as_mut_ptr(), &raw mut length) != 0 {
            return None;
        }
        CStr::from_ptr(text.as_ptr())
    };
    let text = text.to_string_lossy();
    let first = text.lines().next()?.split(',').next()?;
    Some(first.split_whitespace().collect::<Vec<_>>().join(" ").replace("Version: ", ""))
}

/// Folders of libraries that belong to folders of programs.
fn beside(programs: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in programs.into_iter().filter_map(|folder| folder.parent().map(Path::to_path_buf)) {
        // The system's own are the loader's business.
        if root != Path::new("/usr") && root != Path::new("/") {
            folders.extend(["lib", "lib64"].map(|name| root.join(name)));
        }
    }
    folders.dedup();
    folders
}

/// Folders of the programs that started this process, the last first.
fn ancestors() -> Vec<PathBuf> {
    let mut process = std::process::id();
    let mut folders = Vec::new();
    for _ in 0..ANCESTORS {
        let Some(parent) = parent(process).filter(|parent| *parent > 1) else { break };
        let program = fs::read_link(format!("/proc/{parent}/exe")).ok();
        folders.extend(program.and_then(|program| program.parent().map(Path::to_path_buf)));
        process = parent;
    }
    folders
}

fn parent(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have spaces and parentheses itself. After it: state, parent.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn path() -> Vec<PathBuf> {
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let launchers = |folder: &PathBuf| ["mpiexec", "mpirun"].iter().any(|name| folder.join(name).is_file());
    folders.into_iter().filter(launchers).collect()
}

fn environments() -> impl Iterator<Item = PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let program = env::current_exe().ok().and_then(|file| Some(file.parent()?.parent()?.to_path_buf()));
    [set("VIRTUAL_ENV"), set("CONDA_PREFIX"), program].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_launcher_comes_first() {
        assert_eq!(names(Some(Starter::OpenMpi))[0], OPEN_MPI);
        assert_eq!(names(Some(Starter::Mpich))[0], STANDARD);
        assert!(!names(Some(Starter::Mpich)).contains(&OPEN_MPI), "it would leave every process alone");
        assert_eq!(names(None).len(), 4);
    }

    #[test]
    fn libraries_lie_beside_programs() {
        let folders = beside([PathBuf::from("/opt/mpi/bin"), PathBuf::from("/usr/bin"), PathBuf::from("/")]);
        assert_eq!(folders, [Path::new("/opt/mpi/lib"), Path::new("/opt/mpi/lib64")]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_knows_who_started_it() {
        let parent = parent(std::process::id()).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert!(!ancestors().is_empty());
    }

    #[test]
    fn a_file_that_is_no_library_is_not_used() {
        assert!(load(Path::new("/proc/self/stat")).is_none());
        assert!(load(Path::new("libc.so.6")).is_none());
    }
}
