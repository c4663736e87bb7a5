//! Messages of edges on the GPU, compiled for each width of rows and kind of features.

use bytemuck::{Pod, Zeroable};

use super::compile::{Defines, Source};
use super::launch::THREADS;
use super::shape::Parts;
use super::spmm::{Shape, Sums};
use super::{Cuda, source};
use crate::backend::Memory;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::bag::BagKernels;
use crate::ops::edge_values::{EdgeColumns, MOST_CATEGORIES};
use crate::ops::gine::{Gine, GineKernels};

const OP: &str = "messages of edges";
pub(super) static SOURCE: Source = source!("gine", ["numbers", "lanes", "random", "edges", "spmm"]);

/// As in gine.cu.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Terms {
    edges: u64,
    table: u64,
    map: u64,
    constant: u32,
    first: [u32; MOST_CATEGORIES],
    categories: [u32; MOST_CATEGORIES],
    unused: u32,
}

/// What the source is specialised for.
pub(super) fn defines(shape: &Shape, columns: &EdgeColumns, dtype: DType) -> Defines {
    let defines = shape.defines(dtype, dtype).with("EDGE_NUMBERS", columns.dense());
    defines.with("EDGE_CATEGORIES", columns.categories().len())
}

impl Cuda {
    /// The weight with a row per feature.
    fn turned(&self, weight: &Matrix) -> Result<Matrix> {
        let (rows, cols) = weight.shape();
        let mut table = weight.device().uninit(OP, cols, rows, weight.dtype(), Tag::Workspace)?;
        self.transpose(weight, &mut table)?;
        Ok(table)
    }

    fn terms(&self, a: &Gine<'_>, table: &Matrix, map: u64) -> Result<Terms> {
        let mut terms = Terms {
            edges: self.address(OP, "edges", a.edges, table.dtype())?,
            table: self.address(OP, "weight", table, table.dtype())?,
            map,
            constant: a.columns.width() as u32,
            first: [0; MOST_CATEGORIES],
            categories: [0; MOST_CATEGORIES],
            unused: 0,
        };
        for (k, [first, count]) in a.columns.places().enumerate() {
            (terms.first[k], terms.categories[k]) = (first as u32, count as u32);
        }
        Ok(terms)
    }

    /// The sums, or with the gradient of these that of the rows of sources.
    fn messages(&self, a: &Gine<'_>, g: Option<&Matrix>, to: &mut Matrix, write: Write) -> Result<()> {
        let (d, dtype, device) = (a.x.cols(), a.x.dtype(), a.x.device());
        if d == 0 {
            return Ok(());
        }
        let (shape, table) = (Shape::new(d, dtype.size()), self.turned(a.weight)?);
        let (direction, name) = match g {
            None => (&a.graph.forward, "gine"),
            Some(_) => (&a.graph.transpose, "gine_gradient"),
        };
        let (resident, structure) = self.spmm_graph(device, direction)?;
        let map = if g.is_some() { self.edge_map(device, a.graph, &resident)? } else { 0 };
        let launch = self
            .kernel(OP, &SOURCE, defines(&shape, a.columns, dtype), name)?
            .arg(structure)
            .arg(self.terms(a, &table, map)?)
            .arg(self.address(OP, "x", a.x, dtype)?);
        let launch = match g {
            None => launch,
            Some(g) => launch.arg(self.address(OP, "gradient", g, dtype)?),
        };
        let out = self.address_mut(OP, "sums", to, dtype)?;
        let sums = Sums { out, dtype, write, factors: 0, device };
        self.run_sums(&resident, &shape, launch, dtype.compute(), &sums)
    }
}

impl GineKernels for Cuda {
    fn gine(&self, a: &Gine<'_>, out: &mut Matrix, write: Write) -> Result<()> {
        a.check(Some(out), None)?;
        self.messages(a, None, out, write)
    }

    fn gine_dx(&self, a: &Gine<'_>, g: &Matrix, dx: &mut Matrix, write: Write) -> Result<()> {
        a.check(Some(g), Some(dx))?;
        self.messages(a, Some(g), dx, write)
    }

    fn gine_dw(&self, a: &Gine<'_>, g: &Matrix, dw: &mut Matrix, write: Write) -> Result<()> {
        a.check_gradient(g, dw)?;
        let ((d, features), dtype, device) = (dw.shape(), a.x.dtype(), a.x.device());
        let parts = Parts::of(g.rows());
        if d == 0 || parts.count == 0 {
            return if write == Write::Set { self.zero(dw) } else { Ok(()) };
        }
        let (shape, table) = (Shape::new(d, dtype.size()), self.turned(a.weight)?);
        let places = self.resident(device, &a.graph.forward)?.places(self);
        let mut partial = parts.room(device, OP, d * features, dw.dtype())?;
        let threads = d.next_multiple_of(32).min(THREADS);
        let launch = self
            .kernel(OP, &SOURCE, defines(&shape, a.columns, dtype), "gine_weight")?
            .arg(places.indptr)
            .arg(places.indices)
            .arg(self.terms(a, &table, 0)?)
            .arg(self.address(OP, "x", a.x, dtype)?)
            .arg(self.address(OP, "gradient", g, dtype)?)
            .write("partial sums", &mut partial)?
            .arg(g.rows() as u64)
            .arg(parts.rows as u64);
        // SAFETY: the arguments are those of the kernel; shapes were checked, ids in a CSR are below the number of rows
        // of the operands, and a block has a table of partial sums.
        unsafe { launch.run([parts.count, d.div_ceil(threads)], threads, 0) }?;
        let mut sum = device.uninit(OP, features, d, dw.dtype(), Tag::Workspace)?;
        self.add_parts(OP, &partial, 0, &mut sum)?;
        match write {
            Write::Set => self.transpose(&sum, dw),
            Write::Add => self.add(dw, &self.turned(&sum)?),
        }
    }
}
