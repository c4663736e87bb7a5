//! Memory for what other ranks send of a sum, where the sum is made.

use std::mem::MaybeUninit;

use crate::add::add_up;
use crate::collective::place;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::gpu;
use crate::view::{Place, View};

pub(crate) enum Scratch {
    /// Words, so that every type is aligned. They are written before they are read, so nothing clears them.
    Host(Box<[MaybeUninit<u64>]>),
    #[cfg(feature = "cuda")]
    Gpu(gpu::Memory),
    /// Of so many bytes.
    Nowhere(usize),
}

impl Scratch {
    /// Memory of the same kind as a view's.
    pub(crate) fn beside(view: View, bytes: usize) -> Result<Self> {
        match view.place {
            Place::Host => Ok(Self::Host(Box::new_uninit_slice(bytes.div_ceil(8)))),
            #[cfg(feature = "cuda")]
            Place::Cuda(gpu) => Ok(Self::Gpu(gpu::Memory::take(gpu, bytes)?)),
            #[cfg(not(feature = "cuda"))]
            Place::Cuda(_) => Err(crate::moving::Fault::Unknown.into()),
            Place::Nowhere => Ok(Self::Nowhere(bytes)),
        }
    }

    /// All of it, of the place and type of the view that it is beside.
    pub(crate) fn view(&mut self, beside: View) -> View {
        match self {
            Self::Host(words) => View { pointer: words.as_mut_ptr().cast(), bytes: size_of_val(&**words), ..beside },
            #[cfg(feature = "cuda")]
            Self::Gpu(memory) => View { pointer: memory.pointer(), bytes: memory.bytes(), ..beside },
            Self::Nowhere(bytes) => View::nowhere(*bytes, beside.dtype),
        }
    }

    /// Leaves in `to` the sum over ranks of `own`, this rank's piece, and what is here, the pieces of all others.
    ///
    /// # Safety
    /// `to` and `own` are valid, of the place, length and type of each piece, and the same or apart.
    pub(crate) unsafe fn add_up(mut self, to: View, own: View, rank: usize, ranks: usize) -> Result<()> {
        let others = self.view(own);
        match self {
            Self::Host(_) => {
                let theirs = |p: usize| others.part(place(p, rank) * own.bytes, own.bytes);
                let pieces: Vec<View> = (0..ranks).map(|p| if p == rank { own } else { theirs(p) }).collect();
                // SAFETY: as promised by the caller.
                unsafe { add_up(to, &pieces) };
                Ok(())
            }
            #[cfg(feature = "cuda")]
            // SAFETY: as promised by the caller.
            Self::Gpu(memory) => Ok(unsafe { memory.add_up(to, own, rank, ranks) }?),
            Self::Nowhere(_) => Ok(()),
        }
    }
}
