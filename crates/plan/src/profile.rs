//! What is known of a machine: a TOML file, shipped, written by hand, or written by a calibration.
//!
//! ```toml
//! about = "16 nodes with one processor each on 10 Gb/s Ethernet"
//! memory = 64e9             # bytes that a rank may use
//! gpu = false               # whether ranks compute on GPUs
//! compute = "calibrated"         # as fast as the machine at hand; or a factor: 0.5 is twice as fast
//! error = 0.3               # how far times may be off, as a share of them
//!
//! [network]                 # between ranks, see `graphweft_comm::Network`
//!
//! [[kernel]]                # rates of kernels, see `kernels`; without any, those of the machine at hand
//! kind = "gemm"
//! ps_per_flop = 12.0
//! ```
//!
//! Emulations take network, memory and `compute` from it, plans also the kernels.

use std::fs::File;
use std::path::Path;

use graphweft_base::plain;
use graphweft_comm::Network;
use graphweft_tensor::dry::Work;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernels::{Amounts, Caches, Class, Kernel, kernel_for};

/// A machine, or many, as ranks see them. It is TOML, where what is `None` is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is, for people.
    #[serde(default)]
    pub about: String,
    /// Bytes that a rank may use; all that the machine at hand has if nothing is said.
    pub memory: Option<f64>,
    /// Whether ranks compute on GPUs, whose kernels take other memory for themselves than those of processors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpu: bool,
    /// How fast ranks compute.
    #[serde(default)]
    pub compute: Compute,
    /// How it came about.
    #[serde(default, skip_serializing_if = "Source::is_given")]
    pub source: Source,
    /// How far predicted times may be off, as a share of them; see [`Self::error`].
    #[serde(rename = "error")]
    pub known_error: Option<f64>,
    /// Bytes of cache that a rank has for itself, before memory.
    pub cache: Option<f64>,
    /// The same next to a processor.
    pub near_cache: Option<f64>,
    /// Of `cache`, what is still the rank's own when it begins a kernel; all of it if nothing is said.
    pub kept_cache: Option<f64>,
    /// Between ranks.
    pub network: Network,
    /// Rates of kernels.
    #[serde(default, rename = "kernel", skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
}

/// How a profile came about, which says how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Shipped, or written by hand: from data sheets.
    #[default]
    Given,
    /// From a moment's measurement of the machine at hand.
    Rough,
    /// From a measurement of every kernel.
    Measured,
}

impl Source {
    #[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
    fn is_given(&self) -> bool {
        *self == Self::Given
    }

    /// How far times may be off where nothing else is known.
    fn usual_error(self) -> f64 {
        match self {
            Self::Given => 0.3,
            Self::Rough => 0.5,
            Self::Measured => 0.1,
        }
    }
}

/// How fast ranks compute, beside the machine at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Compute {
    /// Times are multiplied by this.
    Factor(f64),
    /// As it does.
    #[default]
    #[serde(with = "calibrated")]
    Calibrated,
}

impl Compute {
    /// What times of the machine at hand are multiplied by.
    pub fn factor(self) -> f64 {
        match self {
            Self::Factor(x) => x,
            Self::Calibrated => 1.0,
        }
    }
}

/// The word that stands for [`Compute::Calibrated`].
mod calibrated {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("calibrated")
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
        match String::deserialize(from)?.as_str() {
            "calibrated" => Ok(()),
            other => Err(de::Error::custom(format!("{other:?} is neither \"calibrated\" nor a number"))),
        }
    }
}

/// Shipped profiles by name.
const SHIPPED: [(&str, &str); 8] = [
    ("h200x8", include_str!("../../../profiles/h200x8.toml")),
    ("a100x8", include_str!("../../../profiles/a100x8.toml")),
    ("2x4-gpu-100g", include_str!("../../../profiles/2x4-gpu-100g.toml")),
    ("16-cpu-10g", include_str!("../../../profiles/16-cpu-10g.toml")),
    ("64-cpu-25g", include_str!("../../../profiles/64-cpu-25g.toml")),
    ("nvlink", include_str!("../../../profiles/nvlink.toml")),
    ("10g", include_str!("../../../profiles/10g.toml")),
    ("1g", include_str!("../../../profiles/1g.toml")),
];

impl Profile {
    /// A shipped profile by name, or the file of that name.
    ///
    /// # Errors
    /// If there is neither, or something in it is wrong.
    pub fn find(name: &str) -> Result<Self> {
        match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            Some((_, text)) => Self::parse(text, Path::new(name)),
            None => Self::read(Path::new(name)),
        }
    }

    /// Names of shipped profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = File::open(path).and_then(plain::text).map_err(|e| {
            let names: Vec<&str> = Self::names().collect();
            let remedy = format!("name a file, or one of {}", names.join(", "));
            Error::profile(path, "file", e.to_string(), remedy)
        })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let profile: Self = toml::from_str(text).map_err(|e| {
            let line = e.span().and_then(|s| text.get(..s.start)).map_or(1, |before| before.matches('\n').count() + 1);
            let remedy = "compare with the profiles that are shipped, in profiles/";
            Error::profile(path, format!("line {line}"), e.message().trim_end(), remedy)
        })?;
        profile.check(path)?;
        Ok(profile)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let wrong = |field: String, x: f64, remedy: &str| Err(Error::profile(path, field, format!("{x}"), remedy));
        let factor = Some(self.compute.factor());
        let fields = [
            ("memory", self.memory),
            ("cache", self.cache),
            ("near_cache", self.near_cache),
            ("kept_cache", self.kept_cache),
            ("compute", factor),
            ("error", self.known_error),
        ];
        for (field, x) in fields {
            if let Some(x) = x.filter(|x| !(x.is_finite() && *x > 0.0)) {
                return wrong(field.into(), x, "set a number above 0");
            }
        }
        for (k, kernel) in self.kernels.iter().enumerate() {
            let queued = kernel.us_in_queue.map(|x| ("us_in_queue", x));
            for (name, x) in kernel.rates().into_iter().chain(queued) {
                if !(x.is_finite() && x >= 0.0) {
                    return wrong(format!("kernel {}: {name}", k + 1), x, "set 0 or more");
                }
            }
            if let Some(x) = kernel.us_recorded.filter(|x| !x.is_finite()) {
                return wrong(format!("kernel {}: us_recorded", k + 1), x, "set a number");
            }
        }
        let has = |kind| self.kernels.iter().any(|k| k.kind == kind && k.op.is_none() && k.pass.is_none());
        for (kind, name) in [(Class::Gemm, "gemm"), (Class::Edges, "edges"), (Class::Stream, "stream")] {
            if !self.kernels.is_empty() && !has(kind) {
                let problem = format!("there is no row for all of kind {name}");
                return Err(Error::profile(path, "kernel", problem, "add one without op"));
            }
        }
        let network = self.network.check();
        network.map_err(|problem| Error::profile(path, "network", problem, "compare with profiles/ in the source"))
    }

    /// As a file.
    pub fn to_toml(&self) -> Result<String> {
        let bug =
            |e: toml::ser::Error| Error::profile(Path::new("profile"), "all", e.to_string(), "report this as a bug");
        toml::to_string(self).map_err(bug)
    }

    /// The same with the kernels and the cache of the machine at hand, scaled, where it has none of its own.
    pub fn computing_as(mut self, here: &Self) -> Self {
        if self.kernels.is_empty() {
            self.kernels = here.kernels.clone();
            self.kernels.iter_mut().for_each(|kernel| kernel.scale(self.compute.factor()));
            (self.cache, self.near_cache) = (self.cache.or(here.cache), self.near_cache.or(here.near_cache));
            (self.kept_cache, self.gpu) = (self.kept_cache.or(here.kept_cache), here.gpu);
            // Whatever its network is, times are no better than these.
            (self.source, self.known_error) = (here.source, self.known_error.or(here.known_error));
        }
        self.memory = self.memory.or(here.memory);
        self
    }

    /// How far predicted times may be off, as a share of them.
    pub fn error(&self) -> f64 {
        self.known_error.unwrap_or(self.source.usual_error())
    }

    /// Seconds that a rank takes for `work`.
    pub fn seconds(&self, work: &Work) -> f64 {
        self.cost(work, Kernel::seconds)
    }

    /// The same where the device has recorded it: nobody calls the kernel.
    pub fn seconds_recorded(&self, work: &Work) -> f64 {
        self.cost(work, Kernel::seconds_recorded)
    }

    fn cost(&self, work: &Work, seconds: fn(&Kernel, &Amounts) -> f64) -> f64 {
        let last = self.cache.unwrap_or(0.0);
        let caches = Caches { near: self.near_cache.unwrap_or(0.0), last, kept: self.kept_cache.unwrap_or(last) };
        let amounts = Amounts::of(work, caches);
        kernel_for(&self.kernels, work).map_or(0.0, |kernel| seconds(kernel, &amounts))
    }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::DType;
    use graphweft_tensor::dry::{Pass, WorkKind};

    use super::*;

    fn wrong(text: &str) -> String {
        Profile::parse(text, Path::new("mine.toml")).unwrap_err().to_string()
    }

    const NETWORK: &str = "[network]\nbetween = { latency = 1e-6, bandwidth = 1e9 }\n";

    #[test]
    fn every_shipped_profile_is_one() {
        for name in Profile::names() {
            let profile = Profile::find(name).unwrap();
            assert!(!profile.about.is_empty(), "{name}");
            assert_eq!(Profile::parse(&profile.to_toml().unwrap(), Path::new(name)).unwrap(), profile);
        }
        let profile = Profile::find("h200x8").unwrap();
        // 2 M rows of 128 columns by 128 × 128: more flops per byte in bf16 than memory can follow.
        let product =
            |dtype| Work { op: "linear", dtype, dropout: false, kind: WorkKind::Gemm { m: 2 << 20, n: 128, k: 128 } };
        let [wide, narrow] = [DType::F32, DType::Bf16].map(|dtype| profile.seconds(&product(dtype)));
        assert!(wide > 1.5 * narrow && narrow > 100e-6, "{wide} {narrow}");
        let kind = WorkKind::Edges {
            pass: Pass::Forward,
            edges: 1 << 24,
            rows: 1 << 20,
            fours: 1 << 22,
            sources: 1 << 20,
            row: 512,
            reuse: None,
            width: 128,
            heads: 8,
        };
        let edges = profile.seconds(&Work { op: "attention", dtype: DType::Bf16, dropout: false, kind });
        assert!((1e-3..1e-2).contains(&edges), "{edges}");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        assert!(wrong("memory = 1e9\n").contains("network"));
        let unknown = wrong(&format!("memroy = 1\n{NETWORK}"));
        assert!(unknown.contains("mine.toml: line 1") && unknown.contains("memroy"), "{unknown}");
        assert!(wrong(&format!("memory = -1.0\n{NETWORK}")).contains("memory: -1"));
        assert!(wrong(&format!("compute = \"fast\"\n{NETWORK}")).contains("line 1"));
        assert!(wrong("[network]\nbetween = { latency = 1e-6, bandwidth = 0.0 }\n").contains("between.bandwidth"));
        let kernel = |rest: &str| wrong(&format!("{NETWORK}[[kernel]]\nkind = \"gemm\"\n{rest}"));
        assert!(kernel("ps_per_flop = -3.0\n").contains("kernel 1: ps_per_flop"));
        assert!(kernel("ps_per_flop = 3.0\n").contains("edges"));
        assert!(Profile::find("nowhere").unwrap_err().to_string().contains("h200x8"));
    }

    #[test]
    fn what_a_profile_does_not_say_is_that_of_the_machine_at_hand() {
        let here = Profile::find("16-cpu-10g").unwrap();
        let slow = Profile::parse(&format!("compute = 2.0\n{NETWORK}"), Path::new("x")).unwrap().computing_as(&here);
        let copy = Work {
            op: "add",
            dtype: DType::F32,
            dropout: false,
            kind: WorkKind::Stream { read: 1 << 20, written: 1, rows: 1 },
        };
        assert!((slow.seconds(&copy) / here.seconds(&copy) - 2.0).abs() < 1e-9);
        assert_eq!((slow.memory, slow.network.between.bandwidth), (here.memory, 1e9));
        let rough = Profile { source: Source::Rough, ..here.clone() };
        let slow = Profile::parse(NETWORK, Path::new("x")).unwrap();
        let errors = [slow.clone().computing_as(&rough), slow.computing_as(&here), here].map(|p| p.error());
        assert_eq!(errors, [0.5, 0.3, 0.3], "times are no better than those of kernels");
    }
}
