//! Every setting with its type, default and meaning, made from the structs that hold them: names and types are asked of
//! serde, defaults of `Default`, and meanings are the comments on the fields.

use graphweft_model::encoding::{self, Encodings};
use graphweft_model::models::meaning_of;
use graphweft_model::{Models, comment_on_field, keys_of};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::kinds::kind;
use super::{
    ComputeConfig, DataConfig, IsolatedConfig, LinkConfig, ParallelConfig, PipelineConfig, RunConfig, TrainConfig,
    WireConfig, refusal_of,
};

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// `section.key`.
    pub name: String,
    /// What it can be, in words.
    pub kind: String,
    /// What it is if nothing is said; `None` if it is then unset.
    pub default: Option<String>,
    /// What it means.
    pub meaning: String,
    /// For keys of `[model]`, the model that has it.
    pub model: Option<&'static str>,
}

/// The sources of sections, by their names.
macro_rules! sources {
    ($($section:ident),*) => { &[$((stringify!($section), include_str!(concat!(stringify!($section), ".rs")))),*] };
}

/// What sections mean: the comments of these.
const SOURCES: &[(&str, &str)] = sources![data, link, train, compute, parallel, wire, pipeline, isolated, run];

impl Key {
    /// All settings, section by section; those of models, model by model.
    pub fn all() -> Vec<Self> {
        let mut all = of_section::<DataConfig>("data");
        all.extend(of_section::<Encodings>("encoding"));
        all.extend(of_models());
        all.extend(of_section::<LinkConfig>("link"));
        all.extend(of_section::<TrainConfig>("train"));
        all.extend(of_section::<ComputeConfig>("compute"));
        all.extend(of_section::<ParallelConfig>("parallel"));
        all.extend(of_section::<WireConfig>("wire"));
        all.extend(of_section::<PipelineConfig>("pipeline"));
        all.extend(of_section::<IsolatedConfig>("isolated"));
        all.extend(of_section::<RunConfig>("run"));
        all
    }
}

fn of_section<T: DeserializeOwned + Serialize + Default>(section: &str) -> Vec<Key> {
    let defaults = Table::try_from(T::default()).unwrap_or_default();
    let source = SOURCES.iter().find(|(name, _)| *name == section).map_or("", |(_, source)| source);
    let one = |key: &&str| Key {
        name: format!("{section}.{key}"),
        kind: kind_of(|value| refusal_of::<T>(key, value)),
        default: defaults.get(*key).map(Value::to_string),
        meaning: comment_on_field(source, key).or_else(|| encoding::meaning_of(key)).unwrap_or_default(),
        model: None,
    };
    keys_of::<T>().iter().map(one).collect()
}

/// The name, then what each model has.
fn of_models() -> Vec<Key> {
    let models = Models::default();
    let about: Vec<String> = models.iter().map(|kind| format!("`{}` ({})", kind.name(), kind.about())).collect();
    let mut all = vec![Key {
        name: "model.name".into(),
        kind: format!("one of {}", models.names().join(", ")),
        default: Some(Value::String(graphweft_model::ModelConfig::default().name().into()).to_string()),
        meaning: format!("Which model: {}.", about.join(", ")),
        model: None,
    }];
    for kind in models.iter() {
        let defaults = kind.read(Table::new()).ok().and_then(|model| Table::try_from(&model).ok()).unwrap_or_default();
        let refusal = |key: &str, value: &Value| {
            let trial = Table::from_iter([(key.to_string(), value.clone())]);
            kind.read(trial).err().map(|e| e.message().trim_end().to_string())
        };
        let one = |key: &&'static str| Key {
            name: format!("model.{key}"),
            kind: kind_of(|value| refusal(key, value)),
            default: defaults.get(*key).map(Value::to_string),
            meaning: meaning_of(kind.name(), key).unwrap_or_default(),
            model: Some(kind.name()),
        };
        all.extend(kind.keys().iter().map(one));
    }
    all
}

/// What a key can be: asked by giving it what it is not.
fn kind_of(refusal: impl Fn(&Value) -> Option<String>) -> String {
    let wrong = [Value::String(String::new()), Value::Array(Vec::new())];
    wrong.iter().find_map(|value| kind(&refusal(value)?)).unwrap_or_else(|| "a text in quotes".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Draft};

    #[test]
    fn every_key_has_a_kind_and_a_meaning() {
        for key in Key::all() {
            assert!(!key.meaning.is_empty(), "{key:?}: the field has no comment");
            assert!(!key.kind.is_empty() && !key.meaning.contains("]("), "{key:?}");
        }
    }

    #[test]
    fn every_key_of_a_configuration_is_there_with_its_default() {
        let all = Key::all();
        let config: Config = Draft::default().finish().unwrap();
        let table = Table::try_from(&config).unwrap();
        for (section, content) in &table {
            for (key, value) in content.as_table().unwrap() {
                let name = format!("{section}.{key}");
                let of_model = |k: &&Key| k.model.is_none_or(|model| model == config.model.name());
                let found = all.iter().filter(of_model).find(|k| k.name == name);
                let found = found.unwrap_or_else(|| panic!("{name} is not listed"));
                // The one key that is decided when a configuration is finished.
                if name != "data.self_loops" {
                    assert_eq!(found.default.as_deref(), Some(value.to_string().as_str()), "{name}");
                }
            }
        }
        let unset = all.iter().filter(|k| k.default.is_none());
        assert!(unset.clone().any(|k| k.name == "parallel.ranks") && unset.count() > 5);
    }

    #[test]
    fn kinds_are_those_that_errors_name() {
        let kind = |name: &str| Key::all().into_iter().find(|k| k.name == name).unwrap().kind;
        assert_eq!(kind("train.lr"), "a number");
        assert_eq!(kind("train.epochs"), "a whole number, 0 or more");
        assert_eq!(kind("data.symmetrise"), "true or false");
        assert_eq!(kind("train.optimizer"), "one of adam, adamw, sgd");
        assert_eq!(kind("data.path"), "a text in quotes");
    }
}
