//! What the table says of every model.

use std::collections::BTreeSet;

use graphweft_model::{Mode, ModelConfig, Models, Reach};
use graphweft_tensor::{DType, Device};
use toml::Table;

use super::Run;

#[test]
fn every_model_has_a_name_an_explanation_and_keys_that_come_back() {
    let all = Models::default();
    let names: BTreeSet<_> = all.names().into_iter().collect();
    assert_eq!(names.len(), all.names().len(), "a name is there twice: {:?}", all.names());
    for kind in all.iter() {
        let (name, about) = (kind.name(), kind.about());
        assert!(!about.is_empty() && !about.contains('\n') && !about.ends_with('.'), "{name}: {about}");
        assert!(kind.keys().contains(&"hidden") && kind.keys().contains(&"layers"), "{name}: {:?}", kind.keys());
        let usual = kind.read(Table::new()).unwrap();
        let text = toml::to_string(&usual).unwrap();
        assert!(text.starts_with(&format!("name = \"{name}\"\nhidden = ")), "{text}");
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), usual, "{text}");
        let other = kind.read(toml::from_str("hidden = 48").unwrap()).unwrap();
        assert_ne!(other, usual, "{name}");
        assert_eq!((other.name(), other.hidden()), (name, 48));
        let wrong = kind.read(toml::from_str("no_such_key = 1").unwrap()).unwrap_err().to_string();
        assert!(wrong.contains("no_such_key") && kind.keys().iter().all(|key| wrong.contains(key)), "{wrong}");
    }
    assert_eq!(ModelConfig::default().name(), "gt");
    assert!(all.get("gtt").is_none());
}

/// Layers know what they see too: what a model says of itself must be true of them.
#[test]
fn a_model_says_what_its_layers_see() {
    for kind in Models::default().iter() {
        let text = format!("name = '{}'", kind.name());
        let (network, _) = Run::new(&text, DType::F32).prepare(&Device::cpu(), Mode::Evaluate);
        let model = kind.read(Table::new()).unwrap();
        let seeing = network.layers().iter().filter(|layer| layer.sees_edges()).count();
        assert_eq!(model.sees_edges(), seeing > 0, "{}", kind.name());
        match model.describe().reach {
            Reach::Row => assert_eq!((seeing, model.hops()), (0, 0), "{}", kind.name()),
            Reach::Edges => assert_eq!(seeing, model.hops(), "{}", kind.name()),
            Reach::Anywhere => assert!(seeing >= model.hops(), "{}", kind.name()),
        }
        assert_eq!(model.heads().is_some(), kind.keys().contains(&"heads"), "{}", kind.name());
    }
}
