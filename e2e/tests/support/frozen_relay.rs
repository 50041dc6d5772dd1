//! A TCP relay that can be frozen: connections stay open and carry nothing.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// A relay to one address. It ends when this is dropped.
pub struct Relay {
    port: u16,
    frozen: watch::Sender<bool>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    pub async fn start(target: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (frozen, receiver) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&target).await else {
                    continue;
                };
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                tokio::spawn(carry(near_read, far_write, receiver.clone()));
                tokio::spawn(carry(far_read, near_write, receiver.clone()));
            }
        });
        Ok(Self {
            port,
            frozen,
            _task: AbortOnDropHandle::new(task),
        })
    }

    pub fn connect_string(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frozen: watch::Receiver<bool>) {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
