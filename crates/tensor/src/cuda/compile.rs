//! Kernels from source: compiled by NVRTC for the GPU at hand when they are first needed, then kept on disk.
//!
//! A kept kernel is found by a hash of everything that it depends on (source, options, architecture, NVRTC's version),
//! so a folder of them never goes stale; and it carries a hash of itself, so a damaged one is compiled again.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::result::{compile_program, create_program, destroy_program, get_program_log};
use cudarc::nvrtc::sys;
use graphweft_base::{cache_folder, durable};
use sha2::{Digest, Sha256};

use super::gpu::Architecture;
use super::numbers::number;
use crate::dtype::DType;

/// Bytes of a hash.
const HASH: usize = 32;

/// A `.cu` file with the headers before it.
#[derive(Debug)]
pub(super) struct Source {
    /// Its name, for messages.
    pub(super) name: &'static str,
    /// What stands before a text from outside, so that it has our types.
    pub(super) before: &'static str,
    /// Its text.
    pub(super) text: &'static str,
}

impl Source {
    /// What tells it from others: our own have names that differ, those from outside only their text.
    pub(super) fn key(&self) -> &'static str {
        if self.before.is_empty() { self.name } else { self.text }
    }
}

/// Declares the source of the `.cu` file with this name, after the `.cuh` files that it needs, in their order.
macro_rules! source {
    ($name:literal, [$($header:literal),+]) => {
        $crate::cuda::compile::Source {
            name: $name,
            before: "",
            text: concat!($(include_str!(concat!($header, ".cuh")), "\n",)+ include_str!(concat!($name, ".cu"))),
        }
    };
}
pub(super) use source;

/// What a source is specialised for: numbers that its preprocessor sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Defines(Vec<(&'static str, usize)>);

impl Defines {
    /// Stored elements of this type.
    pub(super) fn of(storage: DType) -> Self {
        Self(vec![("STORAGE", number(storage))])
    }

    /// And one more number.
    pub(super) fn with(mut self, name: &'static str, value: usize) -> Self {
        self.0.push((name, value));
        self
    }

    fn options(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| format!("-D{name}={value}")).collect()
    }
}

/// The machine code of `source` for an architecture, from `cache` if it is there.
pub(super) fn machine_code(
    source: &Source,
    defines: &Defines,
    architecture: Architecture,
    cache: Option<&Path>,
) -> Result<Vec<u8>, String> {
    let mut options =
        vec![format!("--gpu-architecture=sm_{}{}", architecture.major, architecture.minor), "--std=c++17".into()];
    options.extend(defines.options());
    let version = version()?;
    let mut key = Sha256::new();
    for part in [format!("{}.{}", version.0, version.1).as_str(), &options.join(" "), source.before, source.text] {
        key.update((part.len() as u64).to_le_bytes());
        key.update(part);
    }
    let name: String = key.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let file = cache.map(|folder| folder.join(format!("{}-{}.cubin", source.name, &name[..40])));
    if let Some(found) = file.as_deref().and_then(kept) {
        return Ok(found);
    }
    let code = compile(source.name, &[source.before, source.text].concat(), &options)?;
    if let Some(file) = file {
        // Where nothing can be kept, kernels are compiled in every process.
        keep(&file, &code);
    }
    Ok(code)
}

/// Where kernels are kept.
pub(super) fn kernel_folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("kernels"))
}

/// What a file keeps, unless it is damaged.
fn kept(file: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (hash, code) = bytes.split_at_checked(HASH)?;
    (Sha256::digest(code)[..] == *hash).then(|| code.to_vec())
}

/// Keeps code with its hash.
fn keep(file: &Path, code: &[u8]) {
    durable::keep(file, &[&Sha256::digest(code)[..], code].concat());
}

fn version() -> Result<(i32, i32), String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both point to numbers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }
        .result()
        .map_err(|e| format!("NVRTC has no version: {e:?}"))?;
    Ok((major, minor))
}

/// A program of NVRTC, destroyed at the end.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, and nobody has destroyed it.
        let _ = unsafe { destroy_program(self.0) };
    }
}

fn compile(name: &str, text: &str, options: &[String]) -> Result<Vec<u8>, String> {
    let failed = |what: &str, e: &dyn std::fmt::Debug| format!("cannot {what} {name}.cu: {e:?}");
    let text = std::ffi::CString::new(text).map_err(|e| failed("read", &e))?;
    let program = Program(create_program(&text, None).map_err(|e| failed("read", &e))?);
    // SAFETY: the program lives until the end of this function; the log is a C string.
    unsafe {
        compile_program(program.0, options).map_err(|e| {
            let log = get_program_log(program.0).unwrap_or_default();
            let log = if log.last() == Some(&0) { CStr::from_ptr(log.as_ptr()).to_string_lossy() } else { "".into() };
            format!("cannot compile {name}.cu for {}: {e:?}\n{log}", options.join(" "))
        })?;
        let mut size = 0;
        sys::nvrtcGetCUBINSize(program.0, &mut size).result().map_err(|e| failed("assemble", &e))?;
        let mut code = vec![0u8; size];
        sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()).result().map_err(|e| failed("assemble", &e))?;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Source = Source {
        name: "empty",
        before: "",
        text: concat!(
            include_str!("numbers.cuh"),
            "extern \"C\" __global__ void empty(T *x) { *x = store<T>((C)NUMBER); }"
        ),
    };

    #[test]
    #[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
    fn kernels_are_kept_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let defines = |n| Defines::of(DType::Bf16).with("NUMBER", n);
        let code =
            |n| machine_code(&EMPTY, &defines(n), Architecture { major: 9, minor: 0 }, Some(folder.path())).unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect::<Vec<_>>();
        let first = code(1);
        let [file] = &files()[..] else { panic!("one file") };
        assert_eq!(kept(file), Some(first.clone()));
        // What is in the file is used: another kernel's code under this name.
        keep(file, b"other");
        assert_eq!(code(1), b"other");
        let mut bytes = fs::read(file).unwrap();
        bytes[HASH + 1] ^= 1;
        fs::write(file, &bytes).unwrap();
        assert_eq!(code(1), first);
        fs::write(file, b"short").unwrap();
        assert_eq!(code(1), first);
        assert!(code(2) != first && files().len() == 2);
    }

    #[test]
    #[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
    fn a_mistake_is_reported_with_the_compilers_words() {
        let wrong = Source { name: "wrong", before: "", text: "extern \"C\" __global__ void f() { unknown(); }" };
        let error =
            machine_code(&wrong, &Defines::of(DType::F32), Architecture { major: 8, minor: 0 }, None).unwrap_err();
        assert!(error.contains("wrong.cu") && error.contains("unknown"), "{error}");
    }
}
