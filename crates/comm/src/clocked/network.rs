//! A network that is not here, by a few numbers.

use serde::{Deserialize, Serialize};

/// What is between ranks. All ranks of a node share one port out of it and one into it, through which `between` goes;
/// inside, every rank has ports of its own.
///
/// ```
/// # use graphweft_comm::{Network, Wire};
/// // [network]
/// // ranks_per_node = 4
/// // inside = { latency = 2e-6, bandwidth = 200e9 }
/// // between = { latency = 5e-6, bandwidth = 12.5e9 } # of the node's port, not of each rank
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
    /// Between ranks of different nodes: through ports that all ranks of a node share.
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
    /// The node of a rank.
    pub fn node(&self, rank: usize) -> usize {
        rank / self.ranks_per_node.max(1)
    }

    /// The wire from one rank to another.
    pub fn wire(&self, from: usize, to: usize) -> Wire {
        if self.node(from) == self.node(to) { self.inside.unwrap_or(self.between) } else { self.between }
    }

    /// The same network for `few` ranks that stand for `many`, which have the same share of a port as these.
    pub fn for_fewer(self, few: usize, many: usize) -> Self {
        let ranks_per_node = (self.ranks_per_node * few / many.max(1)).max(1);
        let share = ranks_per_node.min(few) as f64 / self.ranks_per_node.clamp(1, many.max(1)) as f64;
        let between = Wire { bandwidth: self.between.bandwidth * share, ..self.between };
        Self { ranks_per_node, inside: self.inside.or(Some(self.between)), between }
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
    fn fewer_ranks_have_the_same_share_of_a_port() {
        let network = Network { ranks_per_node: 8, inside: None, between: Wire { latency: 1e-6, bandwidth: 8e9 } };
        for (few, ranks_per_node, bandwidth) in [(32, 4, 4e9), (16, 2, 2e9), (2, 1, 1e9), (64, 8, 8e9)] {
            let found = network.for_fewer(few, 64);
            assert_eq!((found.ranks_per_node, found.between.bandwidth), (ranks_per_node, bandwidth), "{few}");
            assert_eq!(found.inside, Some(network.between), "{few}");
        }
        let one = Network { ranks_per_node: 1, ..network };
        assert_eq!(one.for_fewer(4, 64).between, one.between);
    }

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
