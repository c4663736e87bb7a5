//! The `[model]` section: which model, and its keys.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use graphweft_tensor::{DType, Device, Result};
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::init::Init;
use crate::keys::keys_of;
use crate::model::{Model, ModelKeys};
use crate::models::{BUILT_IN, gt};
use crate::network::{Network, Shape};

/// The key that says which model it is.
const NAME: &str = "name";

/// A model by its name: what it is, its keys, and how these are read and written.
#[derive(Clone, Copy)]
pub struct ModelKind {
    name: &'static str,
    about: &'static str,
    keys: fn() -> &'static [&'static str],
    read: fn(Table) -> std::result::Result<Arc<dyn Model>, toml::de::Error>,
    write: fn(&dyn Model) -> std::result::Result<Table, toml::ser::Error>,
}

impl ModelKind {
    /// What `M` says of itself.
    pub const fn of<M: ModelKeys>() -> Self {
        Self { name: M::NAME, about: M::ABOUT, keys: keys_of::<M>, read: read::<M>, write: write::<M> }
    }

    /// As users write it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it is, in one line.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// The keys that it takes beside its name.
    pub fn keys(&self) -> &'static [&'static str] {
        (self.keys)()
    }

    /// The model with these keys, and defaults for others.
    ///
    /// # Errors
    /// If a key is not the model's, or cannot have its value.
    pub fn read(&self, keys: Table) -> std::result::Result<ModelConfig, toml::de::Error> {
        Ok(ModelConfig { kind: *self, model: (self.read)(keys)? })
    }
}

impl fmt::Debug for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn read<M: ModelKeys>(keys: Table) -> std::result::Result<Arc<dyn Model>, toml::de::Error> {
    Ok(Arc::new(keys.try_into::<M>()?))
}

fn write<M: ModelKeys>(model: &dyn Model) -> std::result::Result<Table, toml::ser::Error> {
    let model: &dyn Any = model;
    model.downcast_ref::<M>().map_or_else(|| Ok(Table::new()), Table::try_from)
}

/// The models that can be named.
#[derive(Clone, Debug)]
pub struct Models {
    kinds: Vec<ModelKind>,
}

impl Default for Models {
    /// Those of this crate.
    fn default() -> Self {
        Self { kinds: BUILT_IN.to_vec() }
    }
}

impl From<&ModelConfig> for Models {
    /// Those of this crate, and that of a configuration, which may be another.
    fn from(config: &ModelConfig) -> Self {
        Self::default().and(config.kind)
    }
}

impl Models {
    /// These and another one, which takes the place of one with the same name.
    #[must_use]
    pub fn with<M: ModelKeys>(self) -> Self {
        self.and(ModelKind::of::<M>())
    }

    /// The same for all of `others`.
    #[must_use]
    pub fn with_all(self, others: &Self) -> Self {
        others.iter().fold(self, Self::and)
    }

    fn and(mut self, kind: ModelKind) -> Self {
        match self.kinds.iter_mut().find(|k| k.name == kind.name) {
            Some(same) => *same = kind,
            None => self.kinds.push(kind),
        }
        self
    }

    /// All of them, in the order in which they are listed for users.
    pub fn iter(&self) -> impl Iterator<Item = ModelKind> {
        self.kinds.iter().copied()
    }

    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        self.iter().map(|kind| kind.name).collect()
    }

    /// The one called `name`.
    pub fn get(&self, name: &str) -> Option<ModelKind> {
        self.iter().find(|kind| kind.name == name)
    }

    /// The model of a whole `[model]` section.
    ///
    /// # Errors
    /// If it names none of these, a key is not the model's, or cannot have its value.
    pub fn read(&self, mut section: Table) -> std::result::Result<ModelConfig, toml::de::Error> {
        let unknown = |name: &str| {
            let names: Vec<String> = self.names().iter().map(|name| format!("`{name}`")).collect();
            toml::de::Error::custom(format!("unknown model {name}, expected one of {}", names.join(", ")))
        };
        match section.remove(NAME) {
            Some(Value::String(name)) => self.get(&name).ok_or_else(|| unknown(&format!("`{name}`")))?.read(section),
            Some(other) => Err(unknown(&other.to_string())),
            None => Err(toml::de::Error::missing_field(NAME)),
        }
    }
}

/// A model's name and keys. What it [says of itself](Model) can be asked of it directly.
#[derive(Clone)]
pub struct ModelConfig {
    kind: ModelKind,
    model: Arc<dyn Model>,
}

impl ModelConfig {
    /// A model with these keys.
    pub fn new<M: ModelKeys>(model: M) -> Self {
        Self { kind: ModelKind::of::<M>(), model: Arc::new(model) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// What it is, in one line.
    pub fn about(&self) -> &'static str {
        self.kind.about
    }

    /// Builds the model on `device` with parameters of type `dtype` drawn from `seed`.
    pub fn build(&self, device: &Device, shape: Shape, dtype: DType, seed: u64) -> Result<Network> {
        self.build_with(&Init::new(device, dtype, seed), shape)
    }

    /// The same with these initial weights.
    pub fn build_with(&self, init: &Init<'_>, shape: Shape) -> Result<Network> {
        if shape.of_graphs() && !self.reads_out() {
            let able = |kind: &&ModelKind| kind.read(Table::new()).is_ok_and(|model| model.reads_out());
            let able: Vec<&str> = BUILT_IN.iter().filter(able).map(ModelKind::name).collect();
            let problem = format!("{} predicts nothing of whole graphs: take one of {}", self.name(), able.join(", "));
            return Err(graphweft_tensor::Error::Argument { op: "model", problem });
        }
        self.model.network(init, &shape)
    }

    /// Every key that has a value.
    fn table(&self) -> std::result::Result<Table, toml::ser::Error> {
        (self.kind.write)(&*self.model)
    }
}

impl Default for ModelConfig {
    /// What a configuration that names no model has.
    fn default() -> Self {
        Self::new(gt::Config::default())
    }
}

impl Deref for ModelConfig {
    type Target = dyn Model;

    fn deref(&self) -> &Self::Target {
        &*self.model
    }
}

impl fmt::Debug for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name, self.model)
    }
}

impl PartialEq for ModelConfig {
    fn eq(&self, other: &Self) -> bool {
        let tables = self.table().ok().zip(other.table().ok());
        self.name() == other.name() && tables.is_some_and(|(ours, theirs)| ours == theirs)
    }
}

impl Serialize for ModelConfig {
    /// The name, then the keys in the order in which the model has them.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let table = self.table().map_err(S::Error::custom)?;
        let mut map = serializer.serialize_map(Some(1 + table.len()))?;
        map.serialize_entry(NAME, self.kind.name)?;
        for key in self.kind.keys() {
            if let Some(value) = table.get(*key) {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    /// One of the models of this crate; [`Models::read`] knows others.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Models::default().read(Table::deserialize(deserializer)?).map_err(|e| D::Error::custom(e.message()))
    }
}
