//! Sources by relation: what attention by relation attends to.
//!
//! A source j has keys and values of its own for each relation r that it has an edge of: k_j·A_r and v_j·M_r. So edges
//! lead from *pairs* of a relation and a source, and one softmax goes over all of them, by the same kernels. Rows
//! travel as they are, once, whatever relations they have; they are transformed where they arrive, one product per
//! relation, and their gradient goes back through it before it goes home. What is held is a row of keys and values for
//! each pair that there is among the edges at hand: never more than edges, and never more than sources times relations.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::RelationMaps;
use graphweft_tensor::ops::grouped::{GroupedMap, RowGroups, grouped};
use graphweft_tensor::{Adjacency, Device, Error, Ids, Matrix, Result, Tape, Var};

const OP: &str = "attend by relation";

/// The pairs of some edges.
pub(crate) struct Pairs {
    /// Edges from pairs.
    pub(crate) graph: Rc<Adjacency>,
    /// Original ids of their sources.
    pub(crate) ids: Ids,
    rows: Rc<RowGroups>,
}

impl Pairs {
    /// Those of the edges of `csr`, whose sources have these ids, and which are of these of `count` relations, all of
    /// the first where nothing is said.
    pub(crate) fn new(
        device: &Device,
        csr: &Csr<u32>,
        relations: Option<&[u16]>,
        ids: &Ids,
        count: usize,
    ) -> Result<Self> {
        let sources = csr.num_src();
        let relation = |edge: usize| relations.map_or(0, |all| usize::from(all[edge]));
        let key = |edge: usize| (relation(edge) * sources) as u64 + u64::from(csr.indices()[edge]);
        let edges = 0..csr.num_edges();
        if let Some(edge) = edges.clone().find(|edge| relation(*edge) >= count) {
            let problem = format!("an edge is of relation {}, and the model has {count}", relation(edge));
            return Err(Error::Argument { op: OP, problem });
        }
        let mut pairs: Vec<u64> = edges.map(key).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let (mut indptr, mut indices, mut row) = (vec![0], Vec::with_capacity(csr.num_edges()), Vec::new());
        for i in 0..csr.num_dst() {
            row.clear();
            row.extend(csr.edges_of(i).map(|edge| pairs.partition_point(|pair| *pair < key(edge)) as u32));
            row.sort_unstable();
            indices.extend_from_slice(&row);
            indptr.push(indices.len() as u64);
        }
        let mut lists = vec![Vec::new(); count];
        let width = sources.max(1) as u64;
        pairs.iter().for_each(|pair| lists[(pair / width) as usize].push((pair % width) as u32));
        let original = |pair: &u64| match ids {
            Ids::Same => pair % width,
            Ids::Listed(ids) => ids[(pair % width) as usize],
        };
        let ids = Ids::Listed(pairs.iter().map(original).collect());
        let graph = Rc::new(Adjacency::new(device, Csr::from_valid(indptr, indices, pairs.len()))?);
        Ok(Self { graph, ids, rows: Rc::new(RowGroups::new(device, sources, lists)?) })
    }

    /// The keys and values of the pairs, from those of the sources.
    pub(crate) fn rows(&self, tape: &mut Tape, kv: &Var, maps: RelationMaps<'_>) -> Result<Var> {
        let maps = [maps.keys, maps.values].map(|weight| GroupedMap { weight, bias: None });
        grouped(tape, kv, &self.rows, &maps, kv.value().dtype())
    }

    /// The same with what takes the gradient of the result back.
    pub(crate) fn rows_of(&self, kv: &Matrix, [keys, values]: &[Matrix; 2]) -> Result<PairRows> {
        let mut tape = Tape::new(kv.device());
        let inputs = [kv, keys, values].map(|m| tape.leaf(m.clone()));
        let [kv, keys, values] = &inputs;
        let rows = self.rows(&mut tape, kv, RelationMaps { keys, values })?;
        Ok(PairRows { tape, inputs, rows })
    }
}

/// Keys and values of pairs, and how they were made.
pub(crate) struct PairRows {
    tape: Tape,
    inputs: [Var; 3],
    rows: Var,
}

impl PairRows {
    /// The keys and values.
    pub(crate) fn value(&self) -> &Matrix {
        self.rows.value()
    }

    /// From their gradient, that of the sources' keys and values, and those of the relations' maps.
    pub(crate) fn backward(self, gradient: Matrix) -> Result<[Matrix; 3]> {
        let Self { tape, inputs, rows } = self;
        let found = tape.backward(vec![(rows, gradient)], &inputs.each_ref(), |_| Ok(()))?;
        let all: Vec<Matrix> = found.into_iter().flatten().collect();
        all.try_into().map_err(|_| Error::Argument { op: OP, problem: "a gradient is missing".into() })
    }
}

/// How many relations maps are for, of keys of so many columns.
pub(crate) fn relations_of(map: &Matrix) -> usize {
    map.rows() / map.cols().max(1)
}
