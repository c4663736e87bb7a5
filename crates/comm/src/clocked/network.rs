//! A network that is not here, by a few numbers.

use serde::{Deserialize, Serialize};

/// What is between ranks.
///
/// ```
/// # use graphweft_comm::{Network, Wire};
/// // [network]
/// // ranks_per_node = 4
/// // inside = { latency = 2e-6, bandwidth = 200e9 }
/// // between = { latency = 5e-6, bandwidth = 12.5e9 }
/// let network = Network {
///     ranks_per_node: 4,
///     inside: Some(Wire { latency: 2e-6, bandwidth: 200e9 }),
///     between: Wire { latency: 5e-6, bandwidth: 12.5e9 },
/// };
/// assert_eq!(network.check(), Ok(()));
/// assert_eq!((network.wire(2, 3).bandwidth, network.wire(3, 4).bandwidth), (200e9, 12.5e9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Consecutive ranks that are in one node.
    #[serde(default = "one")]
    pub ranks_per_node: usize,
    /// Between two ranks of a node; as between nodes if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Wire>,
    /// Between ranks of different nodes.
    pub between: Wire,
}

/// What a message goes through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Seconds from when a message has left until it is there: α.
    pub latency: f64,
    /// Bytes per second: β.
    pub bandwidth: f64,
}

fn one() -> usize {
    1
}

impl Network {
    /// The wire from one rank to another.
    pub fn wire(&self, from: usize, to: usize) -> Wire {
        let node = |rank: usize| rank / self.ranks_per_node.max(1);
        if node(from) == node(to) { self.inside.unwrap_or(self.between) } else { self.between }
    }

    /// Whether there can be such a network.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if self.ranks_per_node == 0 {
            return Err("ranks_per_node is 0; a node has at least one".into());
        }
        for (name, wire) in [("inside", self.inside), ("between", Some(self.between))] {
            let Some(Wire { latency, bandwidth }) = wire else { continue };
            if !(latency.is_finite() && latency >= 0.0) {
                return Err(format!("{name}.latency is {latency}; it is in seconds, 0 or more"));
            }
            if !(bandwidth.is_finite() && bandwidth > 0.0) {
                return Err(format!("{name}.bandwidth is {bandwidth}; it is in bytes per second, more than 0"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named() {
        let wire = Wire { latency: 1e-6, bandwidth: 1e9 };
        let good = Network { ranks_per_node: 2, inside: Some(wire), between: wire };
        let of = |network: Network| network.check().unwrap_err();
        assert!(of(Network { ranks_per_node: 0, ..good }).contains("ranks_per_node"));
        assert!(of(Network { inside: Some(Wire { latency: -1.0, ..wire }), ..good }).contains("inside.latency"));
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(of(Network { between: Wire { bandwidth, ..wire }, ..good }).contains("between.bandwidth"));
        }
    }
}
