//! Linear maps by group: each row goes through the map of its group, as `torch_geometric.nn.HeteroLinear` applies one
//! by type of node.
//!
//! y = x_g·W_gᵀ + b_g for the rows x_g of each group g, group after group: one product per group. A row may be in
//! several groups, or in none, and comes out once for each: that is how a source is transformed by every relation that
//! it has an edge of, and [`by_type`], where every row is in one group, puts the rows back where they were. Rows that
//! follow one another are not picked one by one; where one group has all rows in order, nothing is copied at all.
//!
//! The weights of the groups are one matrix, [`GroupedMap`]: G·out rows of `in` numbers. Several of these come out side
//! by side: all of the same columns, or each of columns of its own, such as keys and values. Beside input and output
//! there is only one group at a time.

use std::ops::Range;
use std::rc::Rc;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation};
use crate::ops::combine::Patch;
use crate::ops::linear::{Columns, Weights};
use crate::ops::rows::{RowIndex, gather};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "linear by group";

/// Which rows are in which group.
#[derive(Debug)]
pub struct RowGroups {
    rows: usize,
    groups: Vec<Group>,
    /// The first of each group's rows among all that come out, and how many these are.
    starts: Vec<usize>,
}

#[derive(Debug)]
enum Group {
    /// Rows that follow one another.
    Run(Range<usize>),
    Listed(RowIndex),
}

impl Group {
    fn len(&self) -> usize {
        match self {
            Self::Run(rows) => rows.len(),
            Self::Listed(index) => index.index().len(),
        }
    }
}

impl RowGroups {
    /// Of a matrix with so many rows, those of each group, in the order in which they come out.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn new(device: &Device, rows: usize, lists: Vec<Vec<u32>>) -> Result<Self> {
        let (mut groups, mut starts) = (Vec::with_capacity(lists.len()), vec![0]);
        for list in lists {
            let first = list.first().map_or(0, |row| *row as usize);
            let follow = list.iter().enumerate().all(|(k, row)| *row as usize == first + k);
            starts.push(starts.last().copied().unwrap_or_default() + list.len());
            groups.push(match follow && first + list.len() <= rows {
                true => Group::Run(first..first + list.len()),
                false => Group::Listed(RowIndex::new(device, rows, list)?),
            });
        }
        Ok(Self { rows, groups, starts })
    }

    /// Groups.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Rows that come out.
    pub fn total(&self) -> usize {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether one group has all rows, in order.
    fn is_one(&self) -> bool {
        matches!(&self.groups[..], [Group::Run(rows)] if *rows == (0..self.rows))
    }

    /// The rows of group `g`.
    fn take(&self, x: &Matrix, g: usize) -> Result<Matrix> {
        if self.is_one() {
            return Ok(x.clone());
        }
        let (device, group) = (x.device(), &self.groups[g]);
        let mut some = device.uninit(OP, group.len(), x.cols(), x.dtype(), Tag::Workspace)?;
        match group {
            Group::Run(rows) => {
                let patch = Patch { from: [rows.start, 0], to: [0, 0], size: [rows.len(), x.cols()] };
                device.backend().copy_patch(x, &mut some, patch, Write::Set)?;
            }
            Group::Listed(index) => device.backend().gather_rows(x, index, &mut some)?,
        }
        Ok(some)
    }

    /// Adds the rows of group `g` to where they came from.
    fn add(&self, some: &Matrix, g: usize, to: &mut Matrix) -> Result<()> {
        let device = to.device().clone();
        match &self.groups[g] {
            Group::Run(rows) => {
                let patch = Patch { from: [0, 0], to: [rows.start, 0], size: [rows.len(), some.cols()] };
                device.backend().copy_patch(some, to, patch, Write::Add)
            }
            Group::Listed(index) => device.backend().scatter_rows(some, index, to, Write::Add),
        }
    }
}

/// The maps of all groups.
#[derive(Clone, Copy)]
pub struct GroupedMap<X> {
    /// The weights one below the other: G·out × in.
    pub weight: X,
    /// G × out.
    pub bias: Option<X>,
}

/// Some rows of a matrix; the matrix itself, where these are all.
fn rows_of(m: &Matrix, rows: Range<usize>) -> Result<Matrix> {
    if rows == (0..m.rows()) {
        return Ok(m.clone());
    }
    let mut some = m.device().uninit(OP, rows.len(), m.cols(), m.dtype(), Tag::Workspace)?;
    let patch = Patch { from: [rows.start, 0], to: [0, 0], size: [rows.len(), m.cols()] };
    m.device().backend().copy_patch(m, &mut some, patch, Write::Set)?;
    Ok(some)
}

/// Columns of a matrix; the matrix itself, where these are all.
fn columns_of(m: &Matrix, first: usize, count: usize) -> Result<Matrix> {
    if count == m.cols() {
        return Ok(m.clone());
    }
    let mut some = m.device().uninit(OP, m.rows(), count, m.dtype(), Tag::Workspace)?;
    m.device().backend().copy_patch(m, &mut some, Patch::columns(m.rows(), first, 0, count), Write::Set)?;
    Ok(some)
}

/// Applies `maps` to the rows of `x`: a row for each that is in a group, group after group, with what comes out of all
/// maps side by side. They take all columns of `x`, or share them equally. Elements are then of type `dtype`.
pub fn grouped(
    tape: &mut Tape,
    x: &Var,
    groups: &Rc<RowGroups>,
    maps: &[GroupedMap<&Var>],
    dtype: DType,
) -> Result<Var> {
    let shape = Shape::of(x.value(), groups, maps)?;
    let device = tape.device().clone();
    let mut y = device.uninit(OP, groups.total(), shape.maps * shape.outputs, dtype, Tag::Activations)?;
    for g in 0..groups.count() {
        let xs = groups.take(x.value(), g)?;
        let mut ys = match groups.is_one() {
            true => None,
            false => Some(device.uninit(OP, xs.rows(), y.cols(), dtype, Tag::Workspace)?),
        };
        for (k, map) in maps.iter().enumerate() {
            let part = columns_of(&xs, shape.first(k), shape.inputs)?;
            let weight = rows_of(map.weight.value(), shape.outputs_of(g))?;
            let bias = map.bias.map(|bias| rows_of(bias.value(), g..g + 1)).transpose()?;
            let (bias, first) = (bias.as_ref(), k * shape.outputs);
            let numbers = Weights { weight: &weight, bias, activation: Activation::None, first };
            device.backend().linear(&part, &numbers, ys.as_mut().unwrap_or(&mut y), None)?;
        }
        if let Some(ys) = ys {
            let patch = Patch { from: [0, 0], to: [groups.starts[g], 0], size: [ys.rows(), ys.cols()] };
            device.backend().copy_patch(&ys, &mut y, patch, Write::Set)?;
        }
    }
    let inputs: Vec<&Var> =
        std::iter::once(x).chain(maps.iter().flat_map(|map| std::iter::once(map.weight).chain(map.bias))).collect();
    let saved = || GroupedBackward {
        x: x.value().clone(),
        groups: Rc::clone(groups),
        maps: maps
            .iter()
            .map(|map| GroupedMap { weight: map.weight.value().clone(), bias: map.bias.map(|b| b.value().clone()) })
            .collect(),
        shape,
    };
    Ok(tape.push(&inputs, y, saved))
}

/// How columns are shared.
#[derive(Clone, Copy)]
struct Shape {
    maps: usize,
    inputs: usize,
    outputs: usize,
    from: From,
}

/// Which columns maps take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// All of them do.
    All,
    /// Each has its own.
    Own,
}

impl Shape {
    fn of(x: &Matrix, groups: &RowGroups, maps: &[GroupedMap<&Var>]) -> Result<Self> {
        let (count, first) = (groups.count(), maps.first().map(|map| map.weight.value().shape()));
        let (Some((all, inputs)), true) = (first, count > 0) else {
            return Err(Error::Argument { op: OP, problem: format!("{} maps of {count} groups", maps.len()) });
        };
        let (from, outputs) = (if inputs == x.cols() { From::All } else { From::Own }, all / count);
        let wanted = if from == From::All { inputs } else { maps.len() * inputs };
        x.expect(OP, "x", groups.rows, wanted)?;
        for map in maps {
            map.weight.value().expect(OP, "weight", count * outputs, inputs)?;
            map.bias.map_or(Ok(()), |bias| bias.value().expect(OP, "bias", count, outputs))?;
        }
        Ok(Self { maps: maps.len(), inputs, outputs, from })
    }

    /// The first column that map `k` takes.
    fn first(&self, k: usize) -> usize {
        if self.from == From::All { 0 } else { k * self.inputs }
    }

    /// The rows of a group's weight.
    fn outputs_of(&self, g: usize) -> Range<usize> {
        g * self.outputs..(g + 1) * self.outputs
    }
}

struct GroupedBackward {
    x: Matrix,
    groups: Rc<RowGroups>,
    maps: Vec<GroupedMap<Matrix>>,
    shape: Shape,
}

impl Backward for GroupedBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(dy) = grads.output(0) else { return Ok(()) };
        let Self { x, groups, maps, shape } = *self;
        let device = grads.device().clone();
        let new = |m: &Matrix| device.uninit(OP, m.rows(), m.cols(), m.dtype(), Tag::Gradients);
        let mut found = Vec::with_capacity(maps.len());
        for map in &maps {
            found.push(GroupedMap { weight: new(&map.weight)?, bias: map.bias.as_ref().map(new).transpose()? });
        }
        let zeros = || device.zeros(OP, x.rows(), x.cols(), x.dtype(), Tag::Activations);
        let mut dx = grads.wants(0).then(zeros).transpose()?;
        for g in 0..groups.count() {
            let (xs, dys) = (groups.take(&x, g)?, rows_of(&dy, groups.starts[g]..groups.starts[g + 1])?);
            let mut dxs = match dx {
                Some(_) => Some(device.uninit(OP, xs.rows(), x.cols(), x.dtype(), Tag::Workspace)?),
                None => None,
            };
            for (k, (map, to)) in maps.iter().zip(&mut found).enumerate() {
                shape.weight_gradient(&columns_of(&xs, shape.first(k), shape.inputs)?, &dys, [g, k], to)?;
                if let Some(dxs) = &mut dxs {
                    shape.row_gradient(&map.weight, &dys, [g, k], dxs)?;
                }
            }
            if let (Some(dx), Some(dxs)) = (&mut dx, &dxs) {
                groups.add(dxs, g, dx)?;
            }
        }
        let mut at = 1;
        for map in found {
            for gradient in std::iter::once(map.weight).chain(map.bias) {
                if grads.wants(at) {
                    grads.put(at, gradient)?;
                }
                at += 1;
            }
        }
        dx.map_or(Ok(()), |dx| grads.put(0, dx))
    }
}

impl Shape {
    /// What map `k` gives back to the rows of group `g`: its columns of `dx`.
    fn row_gradient(&self, weight: &Matrix, dy: &Matrix, [g, k]: [usize; 2], dx: &mut Matrix) -> Result<()> {
        let (device, weight) = (dy.device(), rows_of(weight, self.outputs_of(g))?);
        let numbers = Weights { weight: &weight, bias: None, activation: Activation::None, first: k * self.outputs };
        if self.from == From::All {
            return device.backend().linear_dx(dy, &numbers, dx, if k == 0 { Write::Set } else { Write::Add });
        }
        let mut part = device.uninit(OP, dx.rows(), self.inputs, dx.dtype(), Tag::Workspace)?;
        device.backend().linear_dx(dy, &numbers, &mut part, Write::Set)?;
        let patch = Patch::columns(dx.rows(), 0, k * self.inputs, self.inputs);
        device.backend().copy_patch(&part, dx, patch, Write::Set)
    }

    /// What group `g` adds to the gradient of map `k`.
    fn weight_gradient(&self, x: &Matrix, dy: &Matrix, [g, k]: [usize; 2], to: &mut GroupedMap<Matrix>) -> Result<()> {
        let (device, dtype) = (x.device(), to.weight.dtype());
        let mut dw = device.uninit(OP, self.outputs, self.inputs, dtype, Tag::Workspace)?;
        let new_bias = || device.uninit(OP, 1, self.outputs, dtype, Tag::Workspace);
        let mut db = to.bias.is_some().then(new_bias).transpose()?;
        let columns = Columns { of: dy, first: k * self.outputs };
        device.backend().linear_dw(&Activated::itself(x.clone()), columns, &mut dw, db.as_mut())?;
        let put = |from: &Matrix, to: &mut Matrix, row: usize| {
            let patch = Patch { from: [0, 0], to: [row, 0], size: [from.rows(), from.cols()] };
            device.backend().copy_patch(from, to, patch, Write::Set)
        };
        put(&dw, &mut to.weight, g * self.outputs)?;
        match (&db, &mut to.bias) {
            (Some(db), Some(to)) => put(db, to, g),
            _ => Ok(()),
        }
    }
}

/// Rows by type, each of which has one.
#[derive(Debug)]
pub struct RowTypes {
    groups: Rc<RowGroups>,
    /// Where each row is among those that come out by type; nothing where they are in order.
    back: Option<Rc<RowIndex>>,
}

impl RowTypes {
    /// Of the type of each row, of so many.
    ///
    /// # Errors
    /// If a type is none of these.
    pub fn new(device: &Device, types: &[u32], count: usize) -> Result<Self> {
        let mut lists = vec![Vec::new(); count];
        for (row, of) in (0..).zip(types) {
            let problem = || Error::Argument { op: OP, problem: format!("row {row} is of type {of} of {count}") };
            lists.get_mut(*of as usize).ok_or_else(problem)?.push(row);
        }
        let mut place = vec![0; types.len()];
        for (k, row) in (0..).zip(lists.iter().flatten()) {
            place[*row as usize] = k;
        }
        let back = match place.is_sorted() {
            true => None,
            false => Some(Rc::new(RowIndex::new(device, types.len(), place)?)),
        };
        Ok(Self { groups: Rc::new(RowGroups::new(device, types.len(), lists)?), back })
    }

    /// So many rows of one type.
    pub fn one(rows: usize) -> Self {
        let groups = RowGroups { rows, groups: vec![Group::Run(0..rows)], starts: vec![0, rows] };
        Self { groups: Rc::new(groups), back: None }
    }

    /// Types.
    pub fn count(&self) -> usize {
        self.groups.count()
    }
}

/// Applies to each row of `x` what `maps` have for its type, as [`grouped`].
pub fn by_type(tape: &mut Tape, x: &Var, types: &RowTypes, maps: &[GroupedMap<&Var>], dtype: DType) -> Result<Var> {
    let y = grouped(tape, x, &types.groups, maps, dtype)?;
    types.back.as_ref().map_or(Ok(y.clone()), |back| gather(tape, &y, back))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::*;

    /// Rows in two groups, in one and in none, an empty group, rows that follow one another.
    fn groups(device: &Device) -> Rc<RowGroups> {
        Rc::new(RowGroups::new(device, 5, vec![vec![3, 0, 3], vec![], vec![1, 2, 3]]).unwrap())
    }

    fn maps(vars: &[Var]) -> [GroupedMap<&Var>; 2] {
        [GroupedMap { weight: &vars[0], bias: Some(&vars[1]) }, GroupedMap { weight: &vars[2], bias: None }]
    }

    gradients!(|device| {
        let shapes = [(5, 6), (3 * 2, 3), (3, 2), (3 * 2, 3)];
        let inputs: Vec<Matrix> = (1..).zip(shapes).map(|(seed, shape)| upload(&device, seed, shape, 1.0)).collect();
        let groups = groups(&device);
        check(&device, &inputs, &[], |tape, x| grouped(tape, &x[0], &groups, &maps(&x[1..]), DType::F64)).unwrap();
        for types in [vec![1, 0, 1, 1, 3], vec![0, 0, 1, 2, 3], vec![0; 5]] {
            let count = *types.iter().max().unwrap() as usize + 1;
            let types = RowTypes::new(&device, &types, count).unwrap();
            let inputs = [(5, 3), (count * 4, 3), (count, 4), (count * 4, 3)];
            let inputs = inputs.map(|shape| upload(&device, 9, shape, 1.0));
            check(&device, &inputs, &[], |tape, x| by_type(tape, &x[0], &types, &maps(&x[1..]), DType::F64)).unwrap();
        }
    });

    #[test]
    fn every_row_goes_through_the_map_of_its_group() {
        let device = Device::cpu();
        let groups = groups(&device);
        assert_eq!((groups.count(), groups.total()), (3, 6));
        let mut tape = Tape::new(&device);
        let vars: Vec<Var> = [(6, 3), (3, 2), (6, 3)]
            .into_iter()
            .zip(2..)
            .map(|(shape, seed)| tape.leaf(upload(&device, seed, shape, 1.0)))
            .collect();
        let x = tape.leaf(upload(&device, 1, (5, 6), 1.0));
        let y = grouped(&mut tape, &x, &groups, &maps(&vars), DType::F64).unwrap();
        assert_eq!(y.value().shape(), (6, 4));
        let [x, y] = [&x, &y].map(|v| f64s(v.value()));
        let vars: Vec<Vec<f64>> = vars.iter().map(|v| f64s(v.value())).collect();
        for (k, (g, row)) in [(0, 3), (0, 0), (0, 3), (2, 1), (2, 2), (2, 3)].into_iter().enumerate() {
            for (map, weight) in [&vars[0], &vars[2]].into_iter().enumerate() {
                for out in 0..2 {
                    let bias = if map == 0 { vars[1][g * 2 + out] } else { 0.0 };
                    let product = (0..3).map(|c| x[row * 6 + map * 3 + c] * weight[(g * 2 + out) * 3 + c]);
                    let wanted = product.sum::<f64>() + bias;
                    assert!((y[k * 4 + map * 2 + out] - wanted).abs() < 1e-12, "{k} {map} {out}");
                }
            }
        }
    }

    fn case(types: fn(u32) -> u32) -> Case {
        Case::new(vec![(700, 40)], vec![(3 * 33, 40), (3, 33)], move |tape, x, p| {
            let types = RowTypes::new(tape.device(), &(0..700).map(types).collect::<Vec<_>>(), 3)?;
            let (weight, bias) = (tape.parameter(&p[0]), tape.parameter(&p[1]));
            let map = GroupedMap { weight: &weight, bias: Some(&bias) };
            Ok(vec![by_type(tape, &x[0], &types, &[map], x[0].value().dtype())?])
        })
    }

    fn mixed(row: u32) -> u32 {
        row * 31 % 700 % 3
    }

    fn in_order(row: u32) -> u32 {
        row / 300
    }

    agrees_with_f64!([(case(mixed), 5e-6, 2e-2), (case(in_order), 5e-6, 2e-2)], case(mixed));

    #[test]
    fn nonsense_is_refused() {
        let device = Device::cpu();
        assert!(RowGroups::new(&device, 4, vec![vec![0, 4]]).is_err());
        assert!(RowTypes::new(&device, &[0, 2], 2).is_err());
        let types = RowTypes::new(&device, &[0, 1, 0], 2).unwrap();
        let mut tape = Tape::new(&device);
        let mut leaf = |rows, cols| tape.leaf(upload(&device, 1, (rows, cols), 1.0));
        let (x, weight, odd, bias) = (leaf(3, 4), leaf(2 * 5, 4), leaf(2 * 5, 3), leaf(2, 5));
        let mut run = |x, weight, bias| by_type(&mut tape, x, &types, &[GroupedMap { weight, bias }], DType::F64);
        assert!(run(&x, &weight, Some(&bias)).is_ok());
        assert!(run(&x, &odd, None).is_err());
        assert!(run(&x, &weight, Some(&odd)).is_err());
        assert!(run(&weight, &weight, None).is_err());
    }
}
