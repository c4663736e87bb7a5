//! `--device`: where a verb computes.

use graphweft_tensor::{Device, Place, Precision};
use graphweft_train::config::{CommName, ParallelConfig};

use crate::doctor;
use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Where to compute: cpu, cuda, or cuda:1 for the second GPU [default: cuda where a GPU is found, else cpu]
    #[arg(long, value_name = "cpu|cuda[:i]")]
    device: Option<Place>,
}

impl Choice {
    /// Where the ranks of `config` compute. Those of MPI do so on the CPU if nothing is said: MPI moves host memory.
    pub(crate) fn place_of(&self, config: &ParallelConfig, ui: &Ui) -> Place {
        if self.device.is_none() && config.comm == CommName::Mpi { Place::Cpu } else { self.place(ui) }
    }

    /// The place that was named; else a GPU, if one is there with the libraries that it needs, or the CPU.
    pub(crate) fn place(&self, ui: &Ui) -> Place {
        let place = self.device.unwrap_or_else(Place::best);
        let missing = if place == Place::Cpu { Vec::new() } else { doctor::load_cuda() };
        if self.device.is_none() && !missing.is_empty() {
            ui.note(&format!("computing on the CPU: {} not found, see graphweft doctor", missing.join(", ")));
            return Place::Cpu;
        }
        place
    }

    /// A device there, with products of f32 in f32.
    pub(crate) fn open(&self, ui: &Ui) -> anyhow::Result<Device> {
        Ok(self.place(ui).open(Precision::default())?)
    }
}
