//! Matrices between ranks: the safe side of a communicator.
//!
//! A [`Flight`] owns what is sent and what is received until it has landed, so that nobody can touch either meanwhile.

use std::ops::Range;
use std::rc::Rc;

use graphweft_comm::{Communicator, Gpu, Label, Message, Pending, Place, Sum, Type, View};
use graphweft_tensor::{Address, Charge, DType, Device, Error, Matrix, OnGpu, Result, Tag};

use crate::wire::{Coder, Coding, Decoding, Learning, Outgoing, Way, Wire};

/// A rank's communicator with its device.
#[derive(Clone)]
pub struct Link {
    comm: Rc<dyn Communicator>,
    device: Device,
    wire: Option<Rc<Wire>>,
}

/// Matrices under way. Dropped without waiting, the exchange is given up, which other ranks notice.
pub struct Flight {
    // Before the matrices: dropping it ends every use of their memory.
    pending: Box<dyn Pending>,
    received: Vec<Matrix>,
    _sent: Vec<Matrix>,
    decoding: Option<Decoding>,
}

impl Flight {
    /// Blocks until everything has landed and gives what was received.
    ///
    /// # Errors
    /// [`Error::Ranks`] if a rank was lost.
    pub fn wait(self) -> Result<Vec<Matrix>> {
        let Self { pending, received, _sent, decoding } = self;
        pending.wait().map_err(ranks)?;
        match decoding {
            None => Ok(received),
            Some(decoding) => received.iter().map(|coded| decoding.decode(coded)).collect(),
        }
    }

    /// The same for an exchange that receives one matrix.
    pub fn wait_one(self) -> Result<Matrix> {
        let one = self.wait()?.pop();
        one.ok_or_else(|| Error::Argument { op: "exchange", problem: "nothing was received".into() })
    }
}

/// A matrix whose sum over ranks is under way. Dropped without waiting, the sum is given up, which other ranks notice.
pub struct Summing {
    // Before the matrix: dropping it ends every use of its memory.
    sum: Sum,
    matrix: Matrix,
}

impl Summing {
    /// Blocks until all of these have been summed, in the order in which they were started on all ranks.
    ///
    /// # Errors
    /// [`Error::Ranks`] if a rank was lost.
    pub fn wait_all(sums: Vec<Self>) -> Result<Vec<Matrix>> {
        let (sums, matrices): (Vec<Sum>, Vec<Matrix>) = sums.into_iter().map(|s| (s.sum, s.matrix)).unzip();
        Sum::wait_all(sums).map_err(ranks)?;
        Ok(matrices)
    }
}

/// What ranks could not agree on, as an error of computations.
pub fn ranks(e: graphweft_comm::Error) -> Error {
    Error::Ranks(Box::new(e))
}

/// A matrix that another rank sends.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Who sends it.
    pub peer: usize,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// Its type.
    pub dtype: DType,
}

/// Rows of a matrix that follow one another: `counts[rank]` for each rank, from the row `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) first: usize,
    pub(crate) counts: &'a [usize],
}

/// Rows of a matrix, to or from a rank.
struct PeerRows {
    peer: usize,
    matrix: usize,
    rows: Range<usize>,
}

impl Link {
    /// Matrices on `device`, moved by `comm`.
    pub fn new(comm: Rc<dyn Communicator>, device: &Device) -> Self {
        Self { comm, device: device.clone(), wire: None }
    }

    /// The same where rows are coded so while ranks [learn](Link::learning).
    pub fn coded(&self, coding: Coding) -> Self {
        Self { wire: Some(Rc::new(Wire::new(coding))), ..self.clone() }
    }

    /// Begins to learn.
    pub fn learning(&self, epoch: u64) -> Learning {
        Learning::begin(self.wire.as_ref(), epoch)
    }

    /// Whether rows may ever be coded, so that somebody must know their ids.
    pub(crate) fn may_code(&self) -> bool {
        self.wire.is_some()
    }

    /// How rows are coded now, if they are.
    pub(crate) fn coder(&self, label: Label, way: Way) -> Option<Coder> {
        self.wire.as_ref()?.coder(label, way, self.rank())
    }

    /// What is sent for these rows, and what becomes of those that come.
    fn prepared(&self, label: Label, out: Outgoing<'_>, more: usize) -> Result<(Matrix, Option<Decoding>)> {
        let Some(coder) = self.coder(label, out.way) else { return Ok((out.rows.clone(), None)) };
        let (cols, dtype) = (out.rows.cols(), out.rows.dtype());
        Ok((coder.encode(out)?, Some(Decoding { coder, op: label.op, cols, dtype, more })))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// All ranks.
    pub fn size(&self) -> usize {
        self.comm.size()
    }

    /// Where the matrices are.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What moves them.
    pub fn comm(&self) -> &Rc<dyn Communicator> {
        &self.comm
    }

    /// A link between some ranks; see [`Communicator::split`].
    pub fn split(&self, members: &[usize]) -> Result<Self> {
        Ok(Self { comm: self.comm.split(members).map_err(ranks)?, ..self.clone() })
    }

    /// Sends rows of `m`, those for rank 0 first, and receives a matrix with those of rank 0 first.
    pub fn all_to_all(&self, label: Label, m: &Matrix, to: &[usize], from: &[usize]) -> Result<Flight> {
        let total: usize = from.iter().sum();
        let into = self.device.uninit(label.op, total, m.cols(), m.dtype(), Tag::Exchange)?;
        self.exchange(label, m, Run { first: 0, counts: to }, into, Run { first: 0, counts: from })
    }

    /// The same for some rows of `m` and of `into`, whose other rows stay as they are.
    pub(crate) fn exchange(
        &self,
        label: Label,
        m: &Matrix,
        to: Run<'_>,
        into: Matrix,
        from: Run<'_>,
    ) -> Result<Flight> {
        self.fly(label, vec![m.clone()], &in_order_after(to), vec![into], &in_order_after(from))
    }

    /// Sends rows, coded if they are now, and receives a matrix with those of rank 0 first and room for `more` behind
    /// them.
    pub(crate) fn rows(
        &self,
        label: Label,
        out: Outgoing<'_>,
        to: &[usize],
        from: &[usize],
        more: usize,
    ) -> Result<Flight> {
        let (m, decoding) = self.prepared(label, out, more)?;
        let total = from.iter().sum::<usize>() + if decoding.is_some() { 0 } else { more };
        let into = self.device.uninit(label.op, total, m.cols(), m.dtype(), Tag::Exchange)?;
        let flight = self.exchange(label, &m, Run { first: 0, counts: to }, into, Run { first: 0, counts: from })?;
        Ok(Flight { decoding, ..flight })
    }

    /// As [`Link::shift`], coded if rows are now.
    pub(crate) fn shift_rows(
        &self,
        label: Label,
        to: usize,
        out: Outgoing<'_>,
        from: usize,
        rows: usize,
    ) -> Result<Flight> {
        let (m, decoding) = self.prepared(label, out, 0)?;
        Ok(Flight { decoding, ..self.shift(label, to, &m, from, rows)? })
    }

    /// Sends all of `m` to every other rank and receives a matrix with all ranks' rows, `rows[rank]` of each, in order.
    pub fn all_gather(&self, label: Label, m: &Matrix, rows: &[usize]) -> Result<Flight> {
        let total: usize = rows.iter().sum();
        let into = self.device.uninit(label.op, total, m.cols(), m.dtype(), Tag::Exchange)?;
        let sends: Vec<PeerRows> =
            (0..self.size()).map(|peer| PeerRows { peer, matrix: 0, rows: 0..m.rows() }).collect();
        self.fly(label, vec![m.clone()], &sends, vec![into], &in_order(rows))
    }

    /// Sends `m` to rank `to` and receives a matrix of `rows` rows as wide from rank `from`.
    pub fn shift(&self, label: Label, to: usize, m: &Matrix, from: usize, rows: usize) -> Result<Flight> {
        let into = self.device.uninit(label.op, rows, m.cols(), m.dtype(), Tag::Exchange)?;
        let send = PeerRows { peer: to, matrix: 0, rows: 0..m.rows() };
        self.fly(label, vec![m.clone()], &[send], vec![into], &[PeerRows { peer: from, matrix: 0, rows: 0..rows }])
    }

    /// Sends matrices to ranks and receives some of the given shapes.
    pub fn send_each(&self, label: Label, sends: Vec<(usize, Matrix)>, receives: &[Expected]) -> Result<Flight> {
        let piece = |peer, matrix, rows| PeerRows { peer, matrix, rows: 0..rows };
        let out: Vec<PeerRows> = sends.iter().enumerate().map(|(k, (peer, m))| piece(*peer, k, m.rows())).collect();
        let mut into = Vec::with_capacity(receives.len());
        for &Expected { rows, cols, dtype, .. } in receives {
            into.push(self.device.uninit(label.op, rows, cols, dtype, Tag::Exchange)?);
        }
        let back: Vec<PeerRows> = receives.iter().enumerate().map(|(k, one)| piece(one.peer, k, one.rows)).collect();
        self.fly(label, sends.into_iter().map(|(_, m)| m).collect(), &out, into, &back)
    }

    /// Sends `parts` to the other ranks, in their order, and receives into `all`, which has `rows[rank]` rows of each
    /// rank, in order, and this rank's own already.
    pub fn stack(&self, label: Label, parts: Vec<Matrix>, all: Matrix, rows: &[usize]) -> Result<Flight> {
        let whole = |(k, m): (usize, &Matrix)| PeerRows { peer: self.other(k), matrix: k, rows: 0..m.rows() };
        let sends: Vec<PeerRows> = parts.iter().enumerate().map(whole).collect();
        self.fly(label, parts, &sends, vec![all], &self.without_own(in_order(rows)))
    }

    /// The way back: sends `to[rank]` rows of `m`, in order, to each other rank, and receives a matrix of `rows` rows
    /// and `cols[rank]` columns from each of these.
    pub fn unstack(&self, label: Label, m: &Matrix, to: &[usize], rows: usize, cols: &[usize]) -> Result<Flight> {
        let (mut parts, mut receives) = (Vec::with_capacity(cols.len()), Vec::with_capacity(cols.len()));
        for (peer, cols) in cols.iter().enumerate().filter(|(peer, _)| *peer != self.rank()) {
            receives.push(PeerRows { peer, matrix: parts.len(), rows: 0..rows });
            parts.push(self.device.uninit(label.op, rows, *cols, m.dtype(), Tag::Exchange)?);
        }
        self.fly(label, vec![m.clone()], &self.without_own(in_order(to)), parts, &receives)
    }

    /// The `k`th of the other ranks.
    fn other(&self, k: usize) -> usize {
        if k < self.rank() { k } else { k + 1 }
    }

    fn without_own(&self, mut pieces: Vec<PeerRows>) -> Vec<PeerRows> {
        pieces.retain(|piece| piece.peer != self.rank());
        pieces
    }

    /// All ranks' numbers, `counts[rank]` of each, in order.
    pub fn all_gather_ids(&self, label: Label, own: &[u64], counts: &[usize]) -> Result<Vec<u64>> {
        let (own, _counted) = self.numbers(own, counts)?;
        let all = self.on_the_host().all_gather(label, &own, counts)?.wait_one()?;
        Ok(bytemuck::cast_vec(all.to_vec::<f64>()?))
    }

    /// Numbers that are to be moved, and the memory that this takes, with what is received.
    fn numbers(&self, own: &[u64], from: &[usize]) -> Result<(Matrix, Charge)> {
        let bytes = 8 * (own.len() + from.iter().sum::<usize>()) as u64;
        // Moved as they are, whatever the type says.
        let own = Device::cpu().upload(own.len(), 1, bytemuck::cast_slice::<u64, f64>(own), Tag::Exchange)?;
        Ok((own, self.device.charge(Tag::Exchange, bytes)))
    }

    /// For what lies on the host, wherever the matrices are.
    fn on_the_host(&self) -> Self {
        Self::new(Rc::clone(&self.comm), &Device::cpu())
    }

    /// Sends `lists[rank]` to each rank and receives theirs, in order.
    pub fn all_to_all_ids(&self, label: Label, lists: &[Vec<u64>]) -> Result<Vec<Vec<u64>>> {
        let move_all = |ids: &[u64], to: &[usize], from: &[usize]| -> Result<Vec<u64>> {
            let (ids, _counted) = self.numbers(ids, from)?;
            let all = self.on_the_host().all_to_all(label, &ids, to, from)?.wait_one()?;
            Ok(bytemuck::cast_vec(all.to_vec::<f64>()?))
        };
        let (ones, to): (Vec<usize>, Vec<usize>) = lists.iter().map(|list| (1, list.len())).unzip();
        let lengths: Vec<u64> = to.iter().map(|len| *len as u64).collect();
        let from: Vec<usize> = move_all(&lengths, &ones, &ones)?.into_iter().map(|len| len as usize).collect();
        let all = move_all(&lists.concat(), &to, &from)?;
        let mut rest = &all[..];
        let mut next = |len: usize| {
            let (list, after) = rest.split_at(len);
            rest = after;
            list.to_vec()
        };
        Ok(from.into_iter().map(&mut next).collect())
    }

    /// Replaces `m` by its sum over ranks.
    pub fn sum(&self, label: Label, m: &mut Matrix) -> Result<()> {
        let view = view_mut(m)?;
        // SAFETY: `m` is not shared and borrowed mutably until the call is over.
        unsafe { self.comm.all_reduce(label, view) }.map_err(ranks)
    }

    /// Starts to replace `m` by its sum over ranks: gradients travel while others are computed.
    pub fn start_sum(&self, label: Label, mut m: Matrix) -> Result<Summing> {
        let view = view_mut(&mut m)?;
        // SAFETY: the result owns `m`, which is not shared, until it was summed.
        let sum = unsafe { Sum::start(&self.comm, label, view) }.map_err(ranks)?;
        Ok(Summing { sum, matrix: m })
    }

    /// The sum over ranks of `m`, of which this rank gets its share: `rows[rank]` rows, rank 0's first.
    pub fn scatter_sum(&self, label: Label, m: &Matrix, rows: &[usize]) -> Result<Matrix> {
        let mut own = self.device.uninit(label.op, rows[self.rank()], m.cols(), m.dtype(), Tag::Exchange)?;
        let lengths: Vec<usize> = rows.iter().map(|r| r * m.cols()).collect();
        let to = view_mut(&mut own)?;
        // SAFETY: both are borrowed until the call is over, and `own` is not shared.
        unsafe { self.comm.reduce_scatter(label, view(m)?, &lengths, to) }.map_err(ranks)?;
        Ok(own)
    }

    fn fly(
        &self,
        label: Label,
        sent: Vec<Matrix>,
        sends: &[PeerRows],
        mut received: Vec<Matrix>,
        receives: &[PeerRows],
    ) -> Result<Flight> {
        let from = sent.iter().map(view).collect::<Result<Vec<View>>>()?;
        let into = received.iter_mut().map(view_mut).collect::<Result<Vec<View>>>()?;
        let messages = |pieces: &[PeerRows], matrices: &[Matrix], views: &[View]| -> Result<Vec<Message>> {
            let message = |p: &PeerRows| {
                let m = &matrices[p.matrix];
                if p.rows.end > m.rows() {
                    let problem = format!("rows {:?} of {m:?} for rank {}", p.rows, p.peer);
                    return Err(Error::Argument { op: label.op, problem });
                }
                let row = m.cols() * m.dtype().size();
                Ok(Message { peer: p.peer, view: views[p.matrix].part(p.rows.start * row, p.rows.len() * row) })
            };
            let empty = |p: &&PeerRows| p.rows.is_empty() || matrices[p.matrix].cols() == 0;
            pieces.iter().filter(|p| !empty(p)).map(message).collect()
        };
        let (sends, receives) = (messages(sends, &sent, &from)?, messages(receives, &received, &into)?);
        // SAFETY: the flight owns both lists of matrices, which nobody else writes (shared ones never are), until it
        // has landed.
        let pending = unsafe { self.comm.post(label, &sends, &receives) }.map_err(ranks)?;
        Ok(Flight { pending, received, _sent: sent, decoding: None })
    }
}

/// Consecutive rows of one matrix, `counts[rank]` for each rank.
fn in_order(counts: &[usize]) -> Vec<PeerRows> {
    in_order_after(Run { first: 0, counts })
}

fn in_order_after(run: Run<'_>) -> Vec<PeerRows> {
    let Run { first: mut end, counts } = run;
    let mut piece = |(peer, count): (usize, &usize)| {
        end += count;
        PeerRows { peer, matrix: 0, rows: end - count..end }
    };
    counts.iter().enumerate().map(&mut piece).collect()
}

fn view(m: &Matrix) -> Result<View> {
    Ok(at(m.address()?, m))
}

fn view_mut(m: &mut Matrix) -> Result<View> {
    Ok(at(m.address_mut()?, m))
}

fn at(address: Address, m: &Matrix) -> View {
    let dtype = Type::Number(m.dtype());
    match address {
        Address::Host(pointer) => View { place: Place::Host, pointer, bytes: m.bytes(), dtype },
        Address::Cuda(OnGpu { pointer, device, context, stream, aside, add_up }) => {
            let place = Place::Cuda(Gpu { device, context, stream, aside, add_up });
            View { place, pointer: std::ptr::without_provenance_mut(pointer as usize), bytes: m.bytes(), dtype }
        }
        Address::Nowhere => View::nowhere(m.bytes(), dtype),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use graphweft_comm::{Traffic, threads};

    use super::*;

    const LABEL: Label = Label { op: "test", traffic: Traffic::Rows, layer: 0 };

    fn on_ranks<T: Send>(ranks: usize, body: impl Fn(Link) -> Result<T> + Sync) -> Vec<T> {
        let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(20) };
        threads::run(options, |comm| {
            body(Link::new(comm, &Device::cpu()))
                .map_err(|e| graphweft_comm::Error::Library { library: "test", problem: e.to_string() })
        })
        .unwrap()
    }

    #[test]
    fn rows_go_to_their_ranks_and_sums_are_the_same_everywhere() {
        let found = on_ranks(3, |link| {
            let (rank, device) = (link.rank(), link.device().clone());
            // Rank r sends r + 1 rows to rank 0, none to rank 1, one to rank 2; each says who sent it and to whom.
            let to = [rank + 1, 0, 1];
            let rows: Vec<f32> = to.iter().enumerate().flat_map(|(p, n)| vec![(10 * rank + p) as f32; 2 * n]).collect();
            let m = device.upload(rank + 2, 2, &rows, Tag::Activations)?;
            let from: Vec<usize> = (0..3).map(|s| [s + 1, 0, 1][rank]).collect();
            let got = link.all_to_all(LABEL, &m, &to, &from)?.wait_one()?.to_vec::<f32>()?;
            let mut big = device.upload(1500, 2, &vec![rank as f64 + 0.5; 3000], Tag::Activations)?;
            link.sum(LABEL, &mut big)?;
            let share = link.scatter_sum(LABEL, &big, &[1000, 0, 500])?;
            let mut small = device.upload(1, 1, &[1.0f32], Tag::Activations)?;
            link.sum(LABEL, &mut small)?;
            let bucket = |x: f32| device.upload(3000, 1, &vec![x; 3000], Tag::Activations);
            let sums = [link.start_sum(LABEL, bucket(1.5)?)?, link.start_sum(LABEL, bucket(rank as f32)?)?];
            let all = link.all_gather(LABEL, &m, &[2, 3, 4])?.wait_one()?;
            let sums = Summing::wait_all(sums.into())?;
            assert_eq!([sums[0].to_vec::<f32>()?, sums[1].to_vec()?], [vec![4.5; 3000], vec![3.0; 3000]]);
            Ok((got, big.to_vec::<f64>()?, share.to_vec::<f64>()?, small.to_vec::<f32>()?, all.rows()))
        });
        assert_eq!(found[0].0, [0.0, 0.0, 10.0, 10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0]);
        assert!(found[1].0.is_empty());
        assert_eq!(found[2].0, [2.0, 2.0, 12.0, 12.0, 22.0, 22.0]);
        for (rank, (_, big, share, small, rows)) in found.into_iter().enumerate() {
            assert_eq!((big, small, rows), (vec![4.5; 3000], vec![3.0], 9));
            assert_eq!(share, vec![13.5; [2000, 0, 1000][rank]]);
        }
    }
}
