//! `usage.json`: memory by purpose, bytes by operation, layer and peer, and time by kernel, of every rank.

use std::path::Path;

use graphweft_base::{Error, Result, durable};
use graphweft_tensor::Tag;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::ranks::rank::RankUsage;

const NAME: &str = "usage.json";

/// Writes it into `folder`.
pub(crate) fn write(folder: &Path, ranks: &[RankUsage]) -> Result<()> {
    let bug = |e: serde_json::Error| Error::request(format!("cannot write {NAME}: {e}"), "report this as a bug");
    let all: Vec<Value> = ranks.iter().map(of_rank).collect();
    durable::replace(
        &folder.join(NAME),
        (serde_json::to_string(&json!({"ranks": all})).map_err(bug)? + "\n").as_bytes(),
    )
}

fn of_rank(usage: &RankUsage) -> Value {
    let peak: Map<String, Value> = Tag::ALL.iter().map(|tag| (tag.name().into(), usage.peak.of(*tag).into())).collect();
    json!({"peak": peak, "sent": list(&usage.by_layer), "to": usage.to, "kernels": usage.kernels})
}

fn list<T: Serialize>(all: &[T]) -> Value {
    serde_json::to_value(all).unwrap_or_default()
}
