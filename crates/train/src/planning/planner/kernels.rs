//! Predicted against measured, kernel by kernel: where a prediction of time comes from, and where it goes wrong.

use graphweft_comm::Event;
use graphweft_plan::Profile;
use graphweft_tensor::dry::{Pass, Work, WorkKind};
use serde::Serialize;

use crate::error::Result;
use crate::planning::rehearsal::Rehearsal;
use crate::ranks::rank::Rank;

/// Calls that differ in size only, of the mean rank, in an epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The kernel.
    pub op: String,
    /// Heads and columns, where it goes over edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<(usize, usize)>,
    /// How often it is called.
    pub calls: f64,
    /// Milliseconds, as planned.
    pub predicted_ms: f64,
    /// Milliseconds, as it came.
    pub measured_ms: f64,
}

/// What all kernels of a rehearsal are predicted to take, beside the `measured` seconds of each call on each rank.
/// Nothing if a device made other calls than were rehearsed.
pub(crate) fn compare(rehearsal: &Rehearsal, measured: &[Vec<f64>], profile: &Profile) -> Option<Vec<Compared>> {
    let mut all: Vec<Compared> = Vec::new();
    for (rank, seconds) in rehearsal.ranks.iter().zip(measured) {
        let computed = |event: &Event<Work>| match event {
            // Sums of what ranks sent are the communicator's.
            Event::Compute(work) if work.op != graphweft_plan::kernels::SUM => Some(*work),
            _ => None,
        };
        let works: Vec<Work> = rank.log.iter().filter_map(computed).collect();
        if works.len() != seconds.len() {
            return None;
        }
        for (work, seconds) in works.iter().zip(seconds) {
            let (op, shape) = name(work);
            let at = all.iter().position(|c| c.op == op && c.shape == shape).unwrap_or_else(|| {
                all.push(Compared { op, shape, calls: 0.0, predicted_ms: 0.0, measured_ms: 0.0 });
                all.len() - 1
            });
            let (share, group) = (1.0 / measured.len() as f64, &mut all[at]);
            group.calls += share;
            group.predicted_ms += 1e3 * share * profile.seconds(work);
            group.measured_ms += 1e3 * share * seconds;
        }
    }
    all.sort_by(|a, b| b.measured_ms.total_cmp(&a.measured_ms));
    Some(all)
}

fn name(work: &Work) -> (String, Option<(usize, usize)>) {
    let WorkKind::Edges { pass, heads, width, .. } = work.kind else { return (work.op.into(), None) };
    let pass = match pass {
        Pass::Forward => "forward",
        Pass::ByDestination => "by destination",
        Pass::BySource => "by source",
    };
    (format!("{} {pass}", work.op), Some((heads, width)))
}

/// Of every call the least of its times in several epochs.
pub(crate) fn least(epochs: &[Vec<f64>]) -> Vec<f64> {
    let calls = epochs.iter().map(Vec::len).min().unwrap_or(0);
    (0..calls).map(|k| epochs.iter().map(|epoch| epoch[k]).fold(f64::INFINITY, f64::min)).collect()
}

/// The times of all ranks' calls, on the rank that leads.
///
/// # Errors
/// If a rank was lost.
pub(crate) fn gather(rank: &Rank, seconds: &[f64]) -> Result<Vec<Vec<f64>>> {
    let bytes = seconds.iter().flat_map(|s| s.to_le_bytes()).collect();
    let number = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
    let all = rank.gather("metrics", bytes)?;
    Ok(all.iter().map(|bytes| bytes.chunks_exact(8).map(number).collect()).collect())
}
