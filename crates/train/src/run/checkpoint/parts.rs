//! A partition as a safetensors file: `perm`, the original id of each node in new order, and `ranges`, where each part
//! begins.

use std::path::Path;
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_graph::Permutation;
use graphweft_graph::partition::Partition;

use super::{COPY_AGAIN, Tensors};
use crate::error::Result;

const PERM: &str = "perm";
const RANGES: &str = "ranges";

/// The file's bytes; one without tensors where there is no partition.
pub(crate) fn encode(partition: Option<&Partition>) -> Result<Vec<u8>> {
    let mut all = Tensors::default();
    if let Some(partition) = partition {
        all.add_ids(PERM, partition.permutation().old_of_new());
        all.add_ids(RANGES, partition.ranges());
    }
    all.encode()
}

/// What [`encode`] wrote.
pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Option<Arc<Partition>>> {
    let all = Tensors::decode(path, bytes)?;
    if all.is_empty() {
        return Ok(None);
    }
    let bad = |field: &str, problem: String| Bad::bad(path, field, problem, COPY_AGAIN);
    let ids = |name: &str| all.ids(name).ok_or_else(|| bad(name, "it is missing, or no list of ids".into()));
    let permutation = Permutation::from_old_of_new(ids(PERM)?).map_err(|e| bad(PERM, e.to_string()))?;
    let partition = Partition::new(permutation, ids(RANGES)?).map_err(|problem| bad(RANGES, problem))?;
    Ok(Some(Arc::new(partition)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nonsense_is_refused() {
        let path = Path::new("p.safetensors");
        assert!(decode(path, &encode(None).unwrap()).unwrap().is_none());
        let permutation = Permutation::from_old_of_new(vec![2, 0, 1]).unwrap();
        let partition = Partition::new(permutation, vec![0, 1, 1, 3]).unwrap();
        let bytes = encode(Some(&partition)).unwrap();
        assert_eq!(*decode(path, &bytes).unwrap().unwrap(), partition);
        for (perm, ranges, part) in [(&[2, 0, 2][..], &[0, 3][..], "twice"), (&[2, 0, 1], &[0, 4], "4")] {
            let mut all = Tensors::default();
            all.add_ids(PERM, perm);
            all.add_ids(RANGES, ranges);
            let message = decode(path, &all.encode().unwrap()).unwrap_err().to_string();
            assert!(message.contains("p.safetensors") && message.contains(part), "{message}");
        }
        let mut all = Tensors::default();
        all.add_ids(PERM, &[0]);
        assert!(decode(path, &all.encode().unwrap()).is_err());
    }
}
