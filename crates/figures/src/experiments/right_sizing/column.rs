//! Compared methods of buffer sizing, and their settings.

use std::os::fd::AsFd;

use clap::ValueEnum;
use drs::{Action, Mode, apply};
use serde::{Deserialize, Serialize};

/// Bytes of a kilobyte in the paper.
const KB: u32 = 1024;
/// The paper's unlucky static buffer: 212.5 KB, the 66th percentile of its path's bandwidth-delay
/// product.
const UNLUCKY_BUFFER_BYTES: u32 = 425 * KB / 2;

/// One way of sizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// Hosts that nobody tuned: windows of 64 KB.
    Stock,
    /// 212.5 KB on the wire.
    Unlucky,
    /// A 212.5 KB buffer of which a Linux of that time kept a quarter for itself: 159.4 KB on the
    /// wire.
    Unlucky2004,
    /// More than the path ever needs.
    Over,
    /// The paper's algorithm, from 64 KB.
    Classic,
    /// The same with its open questions answered, from 64 KB.
    PaperPlus,
    /// The kernel's autotuning, without any setting.
    Kernel,
    /// `Mode::Auto`, in a program that sets nothing.
    Auto,
    /// A program that sets 64 KB itself.
    Fixed,
    /// `Mode::Auto` in such a program.
    AutoFixed,
}

impl Column {
    /// All methods, in the order of the tables.
    pub const ALL: [Self; 10] = [
        Self::Stock,
        Self::Fixed,
        Self::Unlucky2004,
        Self::Unlucky,
        Self::Over,
        Self::Kernel,
        Self::Classic,
        Self::PaperPlus,
        Self::Auto,
        Self::AutoFixed,
    ];

    /// Returns the head of the method's column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Stock => "stock 64 KB",
            Self::Unlucky => "static 212.5 KB",
            Self::Unlucky2004 => "static 159.4 KB",
            Self::Over => "over-provisioned",
            Self::Classic => "classic",
            Self::PaperPlus => "paper+",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
            Self::Fixed => "program's 64 KB",
            Self::AutoFixed => "auto on 64 KB",
        }
    }

    /// Returns the hosts' largest windows, in the format of a scenario.
    pub const fn hosts(self) -> &'static str {
        match self {
            Self::Stock => "64 KB",
            _ => "8 MB",
        }
    }

    /// Returns the mode that right-sizes the flow.
    pub const fn mode(self) -> Mode {
        match self {
            Self::Classic => Mode::Classic,
            Self::PaperPlus => Mode::PaperPlus,
            Self::Auto | Self::AutoFixed => Mode::Auto,
            _ => Mode::Observe,
        }
    }

    /// Returns the window that stays the same for the whole transfer.
    pub const fn held_window(self) -> Option<u32> {
        match self {
            Self::Fixed => Some(64 * KB),
            Self::Unlucky => Some(UNLUCKY_BUFFER_BYTES),
            Self::Unlucky2004 => Some(UNLUCKY_BUFFER_BYTES / 4 * 3),
            _ => None,
        }
    }

    /// Returns the buffer that the program sets before it connects or listens, in bytes as for
    /// `SO_RCVBUF`.
    const fn first_buffer(self) -> Option<u32> {
        match self {
            Self::Stock | Self::Kernel | Self::Auto => None,
            Self::Classic | Self::PaperPlus | Self::AutoFixed | Self::Fixed => Some(64 * KB),
            Self::Unlucky | Self::Unlucky2004 => Some(UNLUCKY_BUFFER_BYTES),
            Self::Over => Some(4096 * KB),
        }
    }

    /// Returns true if the receiver sets its buffer before it listens. A small buffer that is set
    /// so early also fixes the connection's window scaling, which limits the window for good. Modes
    /// that grow the buffer set it on the connection instead.
    const fn before_listening(self) -> bool {
        !matches!(self, Self::Classic | Self::PaperPlus | Self::AutoFixed)
    }

    /// Applies the settings to the receiver's listening socket.
    pub fn prepare_listener(self, socket: impl AsFd) {
        if let Some(bytes) = self.first_buffer().filter(|_| self.before_listening()) {
            apply(&socket, Action::ReceiveBuffer(bytes));
        }
    }

    /// Applies the settings to the receiver's connection.
    pub fn prepare_connection(self, socket: impl AsFd) {
        if let Some(bytes) = self.first_buffer().filter(|_| !self.before_listening()) {
            apply(&socket, Action::ReceiveBuffer(bytes));
        }
    }

    /// Applies the settings to the sender's socket, before it connects. The receiver enforces
    /// static windows. A sender's buffer of the same size has room for the bytes in flight, because
    /// the kernel doubles it.
    pub fn prepare_sender(self, socket: impl AsFd) {
        if let Some(bytes) = self.first_buffer() {
            apply(&socket, Action::SendBuffer(bytes));
        }
    }
}
