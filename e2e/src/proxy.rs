//! A TCP proxy in front of a server that can refuse, hang, cut connections, and heal.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What a proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Passes everything on.
    Forward,
    /// Accepts nothing, has cut what was open.
    Refuse,
    /// Accepts and keeps connections, and passes nothing on in either direction: packets lost on the way.
    Hang,
}

/// The proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    cut: broadcast::Sender<()>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and passes everything on to `target`.
    pub async fn to(target: SocketAddr) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen on a free port")?;
        let address = listener.local_addr()?;
        let (mode, modes) = watch::channel(Mode::Forward);
        let (cut, _) = broadcast::channel(1);
        let task = tokio::spawn(serve(listener, address, target, modes, cut.clone()));
        Ok(Proxy {
            address,
            mode,
            cut,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections and refuses new ones.
    pub fn refuse(&self) {
        self.mode.send_replace(Mode::Refuse);
        self.drop_connections();
    }

    /// Passes nothing on from now on; connections stay open, and new ones are accepted.
    pub fn hang(&self) {
        self.mode.send_replace(Mode::Hang);
    }

    /// Cuts all connections; new ones are served as before.
    pub fn drop_connections(&self) {
        drop(self.cut.send(())); // an error means that there are none
    }

    /// Passes everything on again, also what was held back on connections that hang.
    pub fn heal(&self) {
        self.mode.send_replace(Mode::Forward);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.drop_connections();
    }
}

async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    target: SocketAddr,
    mut modes: watch::Receiver<Mode>,
    cut: broadcast::Sender<()>,
) {
    let mut listener = Some(listener);
    loop {
        let refusing = *modes.borrow_and_update() == Mode::Refuse;
        if refusing {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await.ok(),
                None if refusing => std::future::pending().await,
                None => {
                    tokio::time::sleep(Duration::from_millis(20)).await; // the port is not free again yet
                    None
                }
            }
        };
        tokio::select! {
            changed = modes.changed() => if changed.is_err() { return },
            connection = accepted => if let Some((client, _)) = connection {
                tokio::spawn(connect(client, target, modes.clone(), cut.subscribe()));
            }
        }
    }
}

async fn connect(
    client: TcpStream,
    target: SocketAddr,
    mut modes: watch::Receiver<Mode>,
    mut cut: broadcast::Receiver<()>,
) {
    let mut refusal = modes.clone();
    let relay = async {
        if modes.wait_for(|mode| *mode == Mode::Forward).await.is_err() {
            return;
        }
        let Ok(Ok(server)) = timeout(Duration::from_secs(5), TcpStream::connect(target)).await else {
            return;
        };
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        tokio::join!(
            copy(client_read, server_write, modes.clone()),
            copy(server_read, client_write, modes.clone())
        );
    };
    tokio::select! {
        () = relay => {}
        _ = cut.recv() => {}
        _ = refusal.wait_for(|mode| *mode == Mode::Refuse) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut modes: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if modes.wait_for(|mode| *mode == Mode::Forward).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            drop(to.shutdown().await);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    drop(tokio::io::copy(&mut read, &mut write).await);
                });
            }
        });
        address
    }

    async fn says(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        stream.write_all(&[byte]).await.ok()?;
        timeout(Duration::from_millis(200), stream.read_u8()).await.ok()?.ok()
    }

    #[tokio::test]
    async fn a_hanging_proxy_holds_back_what_a_healed_one_delivers() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(says(&mut stream, 1).await, Some(1));
        proxy.hang();
        assert_eq!(says(&mut stream, 2).await, None);
        proxy.heal();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_refusing_proxy_cuts_connections_and_accepts_none_until_it_heals() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(says(&mut stream, 1).await, Some(1));
        proxy.refuse();
        assert_eq!(says(&mut stream, 2).await, None);
        crate::eventually(Duration::from_secs(2), "it refuses", || async {
            anyhow::ensure!(TcpStream::connect(proxy.address()).await.is_err(), "it accepts");
            Ok(())
        })
        .await
        .unwrap();
        proxy.heal();
        let mut stream = crate::eventually(Duration::from_secs(2), "it accepts again", || async {
            Ok(TcpStream::connect(proxy.address()).await?)
        })
        .await
        .unwrap();
        assert_eq!(says(&mut stream, 3).await, Some(3));
    }
}
